"""What a marked line says, and the lines a diagnosis quotes."""

import re
from collections.abc import Iterable, Mapping

from kvstudio.diagnose.timeline import Mark, Timeline
from kvstudio.diagnose.values import Evidence, KeyLine
from kvstudio.runlog.signatures.row import Kind
from kvstudio.runlog.values import AllocationFailed, LogLine, Note

MAX_EVIDENCE = 12
MAX_QUOTED = 200
ENDINGS = (Kind.WRAPPER, Kind.CRASH, Kind.KILLED)

#: A figure that the line was cut before.
_UNSAID = re.compile(r"\{\w+\}")
#: Names that are written small, also at the start of a sentence.
_LOWER = ("llama.cpp", "ggml")

#: Lines by number; those that were not kept are absent.
Texts = Mapping[int, LogLine]


def says(mark: Mark) -> str:
    """The meaning of a line with its own figures."""
    if isinstance(mark.event, Note):
        return mark.event.says
    values = mark.groups
    if isinstance(mark.event, AllocationFailed) and mark.event.device:
        values.setdefault("buf", mark.event.device)
    text = mark.signature.says
    for name, value in values.items():
        text = text.replace("{" + name + "}", value[:MAX_QUOTED])
    return _UNSAID.sub("some", text)


def sentence(mark: Mark) -> str:
    """The meaning of a line as a sentence of its own."""
    text = says(mark)
    return f"{text if text.startswith(_LOWER) else text[0].upper() + text[1:]}."


def evidence(marks: Iterable[Mark]) -> tuple[Evidence, ...]:
    """One entry per line, in the order given, not more than a card can show; of lines alike the first and the last."""
    said: dict[int, str] = {}
    for mark in marks:
        said.setdefault(mark.line, says(mark))
    alike: dict[str, list[int]] = {}
    for line, text in said.items():
        alike.setdefault(text, []).append(line)
    found: list[Evidence] = []
    for text, lines in alike.items():
        found.append(Evidence(lines[0], text))
        if len(lines) > 1:
            found.append(
                Evidence(lines[-1], "the same again" if len(lines) == 2 else f"the last of {len(lines)} alike")
            )
    return tuple(found[:MAX_EVIDENCE])


def key_line(mark: Mark, texts: Texts) -> KeyLine:
    line = texts.get(mark.line)
    return KeyLine(mark.line, line.text if line is not None else "")


def message(mark: Mark, texts: Texts) -> str:
    """The line without its prefixes; empty when it was not kept."""
    return message_at(mark.line, texts)


def message_at(number: int, texts: Texts) -> str:
    line = texts.get(number)
    return line.message if line is not None else ""


def generic_line(run: Timeline, key: Mark | None) -> int | None:
    """The last line that only says it failed; a crash only where no program says so."""
    after = [m for m in run.of(*ENDINGS) if key is None or m.line > key.line]
    said = [m for m in after if m.kind is Kind.WRAPPER] or after
    return said[-1].line if said else None


def notes(run: Timeline) -> tuple[str, ...]:
    """What has to be known about the text as a whole."""
    if run.n_runs == 1:
        return ()
    return (f"The text holds {run.n_runs} runs; this is about number {run.number}, the last that shows how it went.",)
