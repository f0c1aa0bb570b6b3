"""Logs with their expected diagnosis, and the ways such a log is changed before somebody reads it."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvstudio.diagnose.values import Diagnosis
from kvstudio.runlog.lines import LineReader
from kvstudio.runlog.values import LogLine

LOGS = Path(__file__).parents[1] / "data" / "logs"
#: Printed MiB have two decimals.
ROUNDING_BYTES = 6000


@dataclass(frozen=True)
class Sample:
    """`expected` holds the facts; `beyond` those that no line of the log proves, with the reason."""

    name: str
    kind: str
    data: bytes
    expected: dict[str, Any]
    beyond: dict[str, str]


def lines_of(text: str) -> tuple[LogLine, ...]:
    reader = LineReader()
    return reader.feed(text.encode("utf-8", "replace")) + reader.close()


def load() -> list[Sample]:
    return [_sample(path) for path in sorted(LOGS.glob("*.toml"))]


def _sample(path: Path) -> Sample:
    said = tomllib.loads(path.read_text(encoding="utf-8"))
    data = path.with_suffix(".log").read_bytes()
    return Sample(path.stem, said["kind"], data, said["expected"], said.get("beyond_the_text", {}))


def misses(sample: Sample, diagnosis: Diagnosis, *, shift: int = 0) -> dict[str, tuple[Any, Any]]:
    """Facts the diagnosis has otherwise than expected, as (got, expected); `shift` is added to its line number."""
    want = dict(sample.expected)
    if want["key_line"]:
        want["key_line"] += shift
    wrong = {}
    for name, got in _facts(diagnosis).items():
        if name not in want or name in sample.beyond or _agrees(name, got, want):
            continue
        wrong[name] = (got, want[name])
    return wrong


def _facts(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "key_line": diagnosis.key_line.number if diagnosis.key_line else 0,
        "outcome": diagnosis.outcome.value,
        "stage": diagnosis.stage or "",
        "device": diagnosis.device or "",
        "requested_bytes": -1 if diagnosis.requested_bytes is None else diagnosis.requested_bytes,
        "free_bytes": -1 if diagnosis.free_bytes is None else diagnosis.free_bytes,
        "class": diagnosis.memory_class,
        "cause": diagnosis.cause.value,
    }


def _agrees(name: str, got: Any, want: dict[str, Any]) -> bool:
    if got == want[name]:
        return True
    if name == "stage":
        # The reporter's stage is a guess there: none, or another one, is as good.
        return not want["stage_certain"]
    if name == "requested_bytes" and not want["bytes_exact"]:
        return abs(got - want[name]) <= ROUNDING_BYTES
    return False


def _each_line(change: Callable[[str], str]) -> Callable[[bytes], bytes]:
    def apply(data: bytes) -> bytes:
        lines = data.decode("utf-8").removesuffix("\n").split("\n")
        return ("\n".join(change(line) for line in lines) + "\n").encode()

    return apply


def _coloured(line: str) -> str:
    return f"\x1b[34m0.00.691.827\x1b[0m \x1b[31mE \x1b[0m{line}\x1b[0m"


def _docker_json(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2025-10-01T10:00:00.000000000Z"})


#: Name, change, and by how many lines the key line moves.
VARIANTS: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "crlf": (lambda data: data.replace(b"\n", b"\r\n"), 0),
    "no last line end": (lambda data: data.rstrip(b"\n"), 0),
    "colours": (_each_line(_coloured), 0),
    "colours without escape": (_each_line(lambda line: _coloured(line).replace("\x1b", "")), 0),
    "utf-16": (lambda data: data.decode().encode("utf-16"), 0),
    "nul bytes": (lambda data: data.replace(b" ", b" \0"), 0),
    "broken utf-8": (lambda data: data.replace(b"\n", b" \xff\xfe\x80\n"), 0),
    "journal": (_each_line(lambda line: f"Jan 26 17:50:35 host ollama[1418]: {line}"), 0),
    "journal, Chinese": (_each_line(lambda line: f"10月 19 22:21:15 gpu ollama[60399]: {line}"), 0),
    "journal, German, no host": (_each_line(lambda line: f"Mär 15 11:39:07 ollama[60399]: {line}"), 0),
    "journal with llama.cpp's stamp": (
        _each_line(lambda line: f"Aug 27 11:21:11 host llama[55781]: 0.15.079.619 I {line}"),
        0,
    ),
    "compose": (_each_line(lambda line: f"llama-cpp    | {line}"), 0),
    "docker stamps": (_each_line(lambda line: f"2025-10-01T10:00:00.123456789Z {line}"), 0),
    "docker json": (_each_line(_docker_json), 0),
    "kubernetes": (_each_line(lambda line: f"2025-10-01T10:00:00.123456789+02:00 stderr F {line}"), 0),
    "snap": (_each_line(lambda line: f"2025-10-10T15:56:09+02:00 deepseek-r1.server[213782]: {line}"), 0),
    "router child": (_each_line(lambda line: f"[34353] {line}"), 0),
    "epoch": (_each_line(lambda line: f"[1717816557] {line}"), 0),
    "dated": (_each_line(lambda line: f"[2024-12-11 21:39:18.096] [info] {line}"), 0),
    "quoted": (_each_line(lambda line: f"> {line}"), 0),
    "indented": (_each_line(lambda line: f"    {line}"), 0),
    "after a banner": (lambda data: b"Welcome to my page\nthe log follows:\n\n" + data, 3),
}
