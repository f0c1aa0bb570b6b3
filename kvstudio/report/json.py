"""A Report as JSON for scripts; what is hidden in the text is hidden here too."""

from typing import Any

from kvstudio.report.excerpt import excerpt
from kvstudio.report.text import hidden
from kvstudio.report.values import Report

SCHEMA = "kvstudio.report/1"


def to_json(report: Report, with_log: bool = True) -> dict[str, Any]:
    """Fields with what would tell the missing ones, the key line, the log's lines and the list of redactions."""
    log = excerpt(report.log if with_log else (), None, report.redactions)
    key = report.key_line
    return {
        "schema": SCHEMA,
        "title": hidden(report.title, report),
        "fields": [
            {
                "id": f.id,
                "label": f.label,
                "collected": f.collected,
                "value": None if f.value is None else hidden(f.value, report),
                "how": f.how,
            }
            for f in report.fields
        ],
        "key_line": None if key is None else {"number": key.number, "text": hidden(key.text, report)},
        "environment": {name: hidden(f"{name}={value}", report)[len(name) + 1 :] for name, value in report.environment},
        "redactions": [
            {"token": r.token, "reason": r.reason, "places": r.places, "hidden": r.hidden} for r in report.redactions
        ],
        "log": {
            "lines": len(report.log),
            "dropped": report.dropped_lines,
            "text": [getattr(item, "text", None) or getattr(item, "words", "") for item in log.items],
        },
    }
