"""A Report as a zip: the texts, the whole log, the case, the environment and the picture of the chart, all redacted."""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvstudio.report import markdown, text
from kvstudio.report.excerpt import clean
from kvstudio.report.json import to_json
from kvstudio.report.redact import plain
from kvstudio.report.save import save_bytes
from kvstudio.report.values import Report

#: Zip files know no time before this; a fixed one keeps equal reports equal.
_DATE = (1980, 1, 1, 0, 0, 0)


def contents(
    report: Report, case: Mapping[str, Any] | None = None, picture: bytes | None = None
) -> tuple[tuple[str, bytes], ...]:
    """File names and bytes of the archive. `case` is the case as plain JSON values, `picture` a PNG of the chart."""
    files = [
        ("report.md", markdown.render(report).encode()),
        ("report.txt", text.render(report).encode()),
        ("report.json", _json(to_json(report, with_log=False)).encode()),
        ("environment.txt", _environment(report).encode()),
    ]
    if report.log:
        files.append(("llama.log", "".join(_log_lines(report)).encode(errors="replace")))
    if case is not None:
        files.append(("case.json", _json(_redacted(case, report)).encode()))
    if picture:
        files.append(("chart.png", picture))
    return tuple(files)


def to_bytes(report: Report, case: Mapping[str, Any] | None = None, picture: bytes | None = None) -> bytes:
    """The archive itself."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents(report, case, picture):
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return buffer.getvalue()


def write(
    report: Report, path: str | Path, case: Mapping[str, Any] | None = None, picture: bytes | None = None
) -> None:
    """Write the archive; a file before stays whole until the new one is complete.

    Raises: StoreError with the system's reason.
    """
    save_bytes(path, to_bytes(report, case, picture))


def _json(plain_values: Any) -> str:
    return json.dumps(plain_values, ensure_ascii=False, indent=1) + "\n"


def _log_lines(report: Report) -> Iterable[str]:
    """The log as it stood, redacted; only terminal escapes and unseen characters are gone."""
    for line in report.log:
        yield clean(plain(line.text, report.redactions)) + "\n"


def _environment(report: Report) -> str:
    lines = [f"{name}={value}" for name, value in report.environment]
    fields = ("os", "cpu", "gpus", "driver", "backend", "version", "binary_path", "free_memory")
    facts = [f"# {report.field(name).label}: {report.field(name).value or 'not collected'}" for name in fields]
    return text.hidden("\n".join((*facts, *lines)), report) + "\n"


def _redacted(value: Any, report: Report, name: str = "") -> Any:
    """Plain JSON values with their texts redacted, member by member, so that the JSON stays whole."""
    if isinstance(value, str):
        seen = plain(value, report.redactions)
        # A secret may be too short to be looked for everywhere, but here its name says what it is.
        return "[KEY]" if name == "api_key" and value and seen == value and _hides_keys(report) else seen
    if isinstance(value, Mapping):
        return {plain(str(k), report.redactions): _redacted(v, report, str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        if len(value) == 2 and all(isinstance(v, str) for v in value):  # a variable and its value
            together = plain(f"{value[0]}={value[1]}", report.redactions)
            if together.startswith(f"{value[0]}="):
                return [value[0], together[len(value[0]) + 1 :]]
        if len(value) > 1 and all(isinstance(v, str) for v in value):
            return _words(value, report)
        return [_redacted(v, report, name) for v in value]
    return value


def _words(words: Sequence[str], report: Report) -> list[str]:
    """An argument list: a short secret is known by the flag before it."""
    seen = []
    for before, word in zip(("", *words), words):
        together = plain(f"{before} {word}", report.redactions)
        after_flag = before.startswith("-") and together.startswith(f"{before} ")
        seen.append(together[len(before) + 1 :] if after_flag else plain(word, report.redactions))
    return seen


def _hides_keys(report: Report) -> bool:
    return any(r.hidden and r.token.startswith("KEY") for r in report.redactions)
