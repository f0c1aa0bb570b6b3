"""What is not in the text and how to get it."""

from kvstudio.diagnose.timeline import Timeline
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import BufferPrinted

_VERBOSE = "The lines before the end: run the same command again with -lv 4 and keep everything it prints."
_WRAPPED = (
    "The server's own log, for the wrapper's message has no reason in it: with Ollama set OLLAMA_DEBUG=1 and read "
    "`journalctl -u ollama` (or server.log)."
)
_KERNEL = "The kernel's log, in case the system ended the process: `sudo dmesg -T | grep -i -E 'killed process|oom'`."
_LIMIT = (
    "How much memory the machine, its container or its cgroup had: `free -m`, `docker stats`, "
    "`systemctl show -p MemoryMax UNIT`."
)
_RPC = "The log of the rpc-server on the other machine: the allocator's own line is there."
_DEVICE = "Which device it was: the list that `llama-server --list-devices` prints."
_FREE = "What each device had free before the start: the list that `llama-server --list-devices` prints."
_PURPOSE = "What the memory was for: the lines after it, with -lv 4."
_BEFORE = "What had been allocated before: run again with -lv 4, which prints every buffer."
_WRAPPER_ROWS = ("resource_text", "runner_terminated", "wrapper_timeout")


def of(
    run: Timeline,
    *,
    device: str | None,
    backend: str | None,
    stage: str | None,
    memory: bool,
    has_key: bool,
    split: bool = False,
) -> tuple[str, ...]:
    """Requests for what would settle the open questions, most useful first.

    `split`: the division among devices is the cause, and what they had free is not in the text.
    """
    wants: list[str] = []
    if not has_key:
        wants.append(_WRAPPED if run.named(*_WRAPPER_ROWS) else _VERBOSE)
        if run.of(Kind.CRASH, Kind.KILLED, Kind.WRAPPER):
            wants.append(_KERNEL)
    if run.of(Kind.KILLED):
        wants.append(_LIMIT)
    if memory and backend == "RPC":
        wants.append(_RPC)
    elif memory and has_key and not run.of(Kind.KILLED):
        wants.extend(_open_questions(run, device, stage, split))
    return tuple(wants)


def _open_questions(run: Timeline, device: str | None, stage: str | None, split: bool) -> list[str]:
    unnamed = device is None or device.startswith("device ")
    # The same list answers both.
    wants = [_FREE] if split else [_DEVICE] if unnamed else []
    if stage is None:
        wants.append(_PURPOSE)
    if not any(isinstance(event, BufferPrinted) for event in run.events):
        wants.append(_BEFORE)
    return wants
