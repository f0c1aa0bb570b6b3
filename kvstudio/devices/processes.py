"""A process id -> who that is, as far as the system tells."""

import psutil

from kvstudio.devices.values import DeviceProcess


def describe_process(pid: int, n_bytes: int | None) -> DeviceProcess:
    """A process that holds device memory; one that we may not look at keeps its number as name."""
    name, user = f"process {pid}", None
    try:
        process = psutil.Process(pid)
        name = process.name() or name
        user = process.username()
    except (psutil.Error, OSError, KeyError, ValueError):
        pass
    return DeviceProcess(pid, name, n_bytes, user)
