"""A Report as plain text, for a mail or a forum."""

from kvstudio.report.excerpt import Excerpt, Gap, clean, excerpt
from kvstudio.report.redact import plain
from kvstudio.report.values import Block, BlockKind, Report

#: Wide enough for the numbers of a log of a million lines.
_NUMBER = 6


def render(report: Report, *, limit_chars: int | None = None) -> str:
    """The report with what is to be hidden hidden; the log whole unless `limit_chars` forces a cut, which is said."""
    log = excerpt(report.log, report.key_line.number if report.key_line else None, report.redactions, limit_chars)
    parts = [plain(clean(report.title), report.redactions)]
    for section in report.sections:
        body = "\n\n".join(_block(block, report, log) for block in section.blocks)
        parts.append(f"{section.title}\n{'-' * len(section.title)}\n{body}")
    return "\n\n".join(parts) + "\n"


def hidden(text: str, report: Report) -> str:
    """A text of several lines, redacted and without characters that cannot be seen."""
    return "\n".join(clean(line) for line in plain(text, report.redactions).split("\n"))


def numbered(log: Excerpt) -> str:
    """The log's lines with their numbers, gaps said where they are."""
    last = next((i.number for i in reversed(log.items) if not isinstance(i, Gap)), 1)
    width = max(3, min(len(str(last)), _NUMBER))
    return "\n".join(i.words if isinstance(i, Gap) else f"{i.number:>{width}}: {i.text}" for i in log.items)


def about_log(report: Report, log: Excerpt) -> str:
    """One line on how complete the log is."""
    dropped = f"; {report.dropped_lines} more lines were printed and not kept" if report.dropped_lines else ""
    return log.says + dropped


def _block(block: Block, report: Report, log: Excerpt) -> str:
    if block.kind is BlockKind.LOG:
        return f"({about_log(report, log)})\n{numbered(log)}"
    return hidden(block.text, report)
