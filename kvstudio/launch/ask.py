"""One short question to a program (--version, --help, --list-devices) -> what it answered, or why it could not."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO

from kvstudio.errors import LaunchError
from kvstudio.launch.environment import outside_bundle

#: More than any answer; a program that prints more is stopped.
MAX_ANSWER_BYTES = 4 * 1024 * 1024

#: Source: the ELF specification, field e_machine.
_ELF_MACHINES = {
    3: "x86",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
    258: "loongarch64",
}
_SAME_CPU = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64", "i686": "x86", "i386": "x86", "ppc64le": "ppc64"}
_PE_MACHINES = {0x14C: "x86", 0x8664: "x86_64", 0xAA64: "aarch64"}
_MACHO = (b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program printed and how it ended; `code` as in Popen, negative for a signal."""

    out: str
    err: str
    code: int

    @property
    def text(self) -> str:
        """Both streams, the usual one first."""
        return f"{self.out}\n{self.err}"


def ask(argv: tuple[str, ...], env: Mapping[str, str], timeout_s: float) -> Answer:
    """Run a program in a process group of its own and collect its answer; nothing of it is left running.

    Raises: LaunchError that says whether it is missing, not executable, for another CPU, or did not answer in time.
    """
    process = _start(argv, env)
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    full = threading.Event()
    assert process.stdout is not None and process.stderr is not None
    streams = (process.stdout, process.stderr)
    readers = [
        threading.Thread(target=_collect, args=(stream, into, full), daemon=True)
        for stream, into in zip(streams, parts)
    ]
    for reader in readers:
        reader.start()
    code = _wait(process, timeout_s, full)
    end_group(process)
    for reader in readers:
        reader.join(2)
    for reader, stream in zip(readers, streams):
        if not reader.is_alive():
            stream.close()
    question = " ".join(argv[1:])
    if full.is_set():
        raise LaunchError(f"{argv[0]} {question} prints without end.", "It is not a program of llama.cpp.")
    if code is None:
        says = f"{argv[0]} {question} did not answer within {timeout_s:g} s and was stopped."
        raise LaunchError(says, "Run it in a terminal to see what it waits for; a GPU driver may hang.")
    out, err = (b"".join(part).decode("utf-8", "replace") for part in parts)
    return Answer(out, err, code)


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and what it started; harmless when all have ended."""
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _start(argv: tuple[str, ...], env: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    path = argv[0]
    if os.path.isdir(path):
        raise LaunchError(f"{path} is a folder, not a program.", "Choose the program inside it.")
    flags = 0
    if sys.platform == "win32":
        from kvstudio.launch.process_windows import CREATE_NO_WINDOW, refuse_script

        refuse_script(path)
        flags = CREATE_NO_WINDOW
    try:
        with outside_bundle():
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                start_new_session=sys.platform != "win32",
                creationflags=flags,
            )
    except OSError as problem:
        raise _refused(path, problem) from problem
    except ValueError as problem:
        raise LaunchError(f"{path!r} cannot be started: {problem}.", "Check the path.") from problem


def _refused(path: str, problem: OSError) -> LaunchError:
    """Why the system did not start a program."""
    if not os.path.exists(path):
        return LaunchError(f"{path} does not exist.", "Choose another llama.cpp program.")
    kind = program_kind(path)
    cpu = kind and kind.rpartition(" ")[2]
    here = _SAME_CPU.get(platform.machine().lower(), platform.machine().lower())
    if kind and (not kind.startswith(_here()) or cpu != here):
        return LaunchError(
            f"{path} is a program for {kind}; this machine is {_here()} on {here}.", "Get the right build."
        )
    if isinstance(problem, PermissionError):
        return LaunchError(f"{path} may not be executed.", f"Make it executable: chmod +x '{path}'")
    if isinstance(problem, FileNotFoundError):
        return LaunchError(f"{path} needs a loader or interpreter that is not on this system.", "Get another build.")
    if kind is None:
        return LaunchError(f"{path} is not a program.", "Choose a program of llama.cpp, such as llama-server.")
    return LaunchError(f"{path} cannot be started: {problem.strerror or problem}.", "Run it in a terminal.")


def _here() -> str:
    return {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}.get(sys.platform, sys.platform)


def program_kind(path: str) -> str | None:
    """`Linux on aarch64` by the file's first bytes; None when it is no program of any system."""
    try:
        with open(path, "rb") as file:
            start = file.read(4096)
    except OSError:
        return None
    if start.startswith(b"\x7fELF") and len(start) > 20:
        order = "little" if start[5] == 1 else "big"
        machine = int.from_bytes(start[18:20], "little" if order == "little" else "big")
        return f"Linux on {_ELF_MACHINES.get(machine, f'CPU {machine}')}"
    if start.startswith(b"MZ"):
        at = int.from_bytes(start[60:64], "little")
        machine = int.from_bytes(start[at + 4 : at + 6], "little")
        return f"Windows on {_PE_MACHINES.get(machine, f'CPU {machine:#x}')}"
    if start[:4] in _MACHO:
        cpu = int.from_bytes(start[4:8], "little")
        return f"macOS on {({0x01000007: 'x86_64', 0x0100000C: 'aarch64'}).get(cpu, 'several')}"
    return None


def _wait(process: "subprocess.Popen[bytes]", timeout_s: float, full: threading.Event) -> int | None:
    """Exit code, None after the timeout or when the answer is endless."""
    deadline = time.monotonic() + timeout_s
    while not full.is_set():
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        try:
            return process.wait(min(left, 0.1))
        except subprocess.TimeoutExpired:
            continue
    return None


def _collect(stream: IO[bytes], into: list[bytes], full: threading.Event) -> None:
    size = 0
    while part := os.read(stream.fileno(), 65536):
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            full.set()
            return
        into.append(part)
