"""The host: its RAM as a device, its CPU and its system."""

import os
import platform
import sys

import psutil

from kvstudio.devices.values import Device, DeviceSource


def read_host(root: str = "/") -> tuple[Device, tuple[str, ...]]:
    """RAM with what programs can still get, and notes; a container's limit counts where it is the smaller one."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError) as problem:
        reason = f"the system does not say how much memory it has: {problem}"
        return Device("Host", "CPU", cpu_name(root), source=DeviceSource.SYSMEM, integrated=True, reason=reason), ()
    total, free = int(memory.total), int(memory.available)
    limit, used = _cgroup(root)
    notes: tuple[str, ...] = ()
    if limit is not None and limit < total:
        notes = (f"this container may use {limit / 1024**3:.1f} GiB of the machine's {total / 1024**3:.1f} GiB RAM",)
        total, free = limit, min(free, max(0, limit - (used or 0)))
    own = _address_space_limit()
    if own is not None and own < free:
        notes += (f"each process here may use {own / 1024**3:.1f} GiB of address space (ulimit -v)",)
        free = own
    return Device("Host", "CPU", cpu_name(root), total, free, DeviceSource.SYSMEM, integrated=True), notes


def cpu_name(root: str = "/") -> str:
    """`AMD Ryzen 9 7950X 16-Core Processor`."""
    try:
        with open(os.path.join(root, "proc/cpuinfo"), encoding="utf-8", errors="replace") as file:
            for line in file:
                name, colon, value = line.partition(":")
                if colon and name.strip() in ("model name", "Hardware", "cpu model") and value.strip():
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def system_name() -> str:
    """`Debian GNU/Linux 12 (bookworm), Linux 6.1.0 x86_64`."""
    kernel = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]} {platform.machine()}"
    if sys.platform == "win32":
        return f"Windows {platform.version()} {platform.machine()}"
    try:
        return f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {kernel}"
    except (OSError, KeyError):
        return kernel


def _address_space_limit() -> int | None:
    """RLIMIT_AS in bytes, which a child inherits; None where there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _cgroup(root: str) -> tuple[int | None, int | None]:
    """Limit and use of the container's memory without its page cache, version 2 then 1; None where there is none."""
    base = os.path.join(root, "sys/fs/cgroup")
    limit = _number(os.path.join(base, "memory.max"))
    if limit is not None:
        used = _number(os.path.join(base, "memory.current"))
        return limit, _less_cache(used, os.path.join(base, "memory.stat"), "inactive_file")
    limit = _number(os.path.join(base, "memory/memory.limit_in_bytes"))
    used = _number(os.path.join(base, "memory/memory.usage_in_bytes"))
    return limit, _less_cache(used, os.path.join(base, "memory/memory.stat"), "total_inactive_file")


def _less_cache(used: int | None, stat_path: str, name: str) -> int | None:
    if used is None:
        return None
    try:
        with open(stat_path, encoding="ascii", errors="replace") as file:
            found = dict(line.split(None, 1) for line in file if " " in line)
        return max(0, used - int(found.get(name, "0")))
    except (OSError, ValueError):
        return used


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            word = file.read(64).strip()
    except OSError:
        return None
    return int(word) if word.isdigit() else None
