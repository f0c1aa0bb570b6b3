"""What is not in the text and how to get it."""

from kvstudio.diagnose.timeline import Timeline
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import BufferPrinted

_VERBOSE = "The lines before the end: run the same command again with -lv 4 and keep everything it prints."


def of(
    run: Timeline, *, device: str | None, backend: str | None, stage: str | None, memory: bool, has_key: bool
) -> tuple[str, ...]:
    """Requests for what would settle the open questions, most useful first."""
    wants: list[str] = []
    wrapped = any(m.signature.name in ("resource_text", "runner_terminated", "wrapper_timeout") for m in run.marks)
    if not has_key:
        wants.append(
            "The server's own log: with Ollama set OLLAMA_DEBUG=1 and read `journalctl -u ollama` (or server.log); the wrapper's message has no reason in it."
            if wrapped
            else _VERBOSE
        )
    if not has_key and run.of(Kind.CRASH, Kind.KILLED, Kind.WRAPPER):
        wants.append(
            "The kernel's log, in case the system ended the process: `sudo dmesg -T | grep -i -E 'killed process|oom'`."
        )
    if any(m.signature.name == "oom_kill" or m.kind is Kind.KILLED for m in run.marks):
        wants.append(
            "How much memory the machine, its container or its cgroup had: `free -m`, `docker stats`, `systemctl show -p MemoryMax UNIT`."
        )
    if memory and backend == "RPC":
        wants.append("The log of the rpc-server on the other machine: the allocator's own line is there.")
    if memory and has_key and backend != "RPC":
        if device is None or device.startswith("device "):
            wants.append("Which device it was: the list that `llama-server --list-devices` prints.")
        if stage is None:
            wants.append("What the memory was for: the lines after it, with -lv 4.")
        if not any(isinstance(e, BufferPrinted) for e in run.events):
            wants.append("What had been allocated before: run again with -lv 4, which prints every buffer.")
    return tuple(wants)
