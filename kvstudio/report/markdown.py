"""A Report as Markdown for the upstream form; whatever a log or a model says stays text."""

import re

from kvstudio.report.excerpt import Excerpt, excerpt
from kvstudio.report.text import about_log, hidden, numbered
from kvstudio.report.values import Block, BlockKind, Report

#: An issue's body may have 65536 characters; some are left for what its author adds.
LIMIT_CHARS = 64000
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~&!@$])")
_LIST_LIKE = re.compile(r"^(\s*)([-+=]|\d+[.)])", re.MULTILINE)


def render(report: Report, *, limit_chars: int | None = LIMIT_CHARS) -> str:
    """The whole body of an issue, at most `limit_chars` long (but never without its facts); a cut log says where."""
    key = report.key_line.number if report.key_line else None
    without = _body(report, excerpt((), None, ()))
    room = None if limit_chars is None else limit_chars - len(without) - 200
    log = excerpt(report.log, key, report.redactions, room)
    return _body(report, log)


def title(report: Report) -> str:
    """The issue's title, redacted."""
    return hidden(report.title.replace("\n", " "), report)


def fence(text: str, language: str = "") -> str:
    """A code block that nothing in the text can end: its fence is longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def escape(text: str) -> str:
    """Prose in which nothing is markup, a link, a mention or an HTML tag."""
    quoted = _MARKUP.sub(r"\\\1", text)
    quoted = _LIST_LIKE.sub(lambda m: f"{m[1]}{m[2][:-1]}\\{m[2][-1]}", quoted)
    return re.sub(r"(?i)\b(https?|www)([:.])", "\\1\u200b\\2", quoted)


def _body(report: Report, log: Excerpt) -> str:
    parts = []
    for section in report.sections:
        body = "\n\n".join(_block(block, report, log) for block in section.blocks)
        parts.append(f"### {section.title}\n\n{body}")
    return "\n\n".join(parts) + "\n"


def _block(block: Block, report: Report, log: Excerpt) -> str:
    if block.kind is BlockKind.LOG:
        return _log(report, log)
    text = hidden(block.text, report)
    if block.kind in (BlockKind.PROSE, BlockKind.MISSING):
        return escape(text) if block.kind is BlockKind.PROSE else f"_{escape(text)}_"
    return fence(text, "console" if block.kind is BlockKind.KEY else "text")


def _log(report: Report, log: Excerpt) -> str:
    summary = f"Logs ({about_log(report, log)})"
    return f"<details>\n<summary>{summary}</summary>\n\n{fence(numbered(log), 'console')}\n\n</details>"
