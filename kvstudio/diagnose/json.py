"""A Diagnosis as the command line prints it."""

from typing import Any

from kvstudio.diagnose.values import Diagnosis

SCHEMA = "kvstudio.diagnosis/1"


def to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The contract of `kvstudio-cli diagnose --json`: sizes are bytes, unknown is null."""
    key = diagnosis.key_line
    return {
        "schema": SCHEMA,
        "outcome": diagnosis.outcome.value,
        "class": diagnosis.memory_class,
        "stage": diagnosis.stage,
        "device": diagnosis.device,
        "backend": diagnosis.backend,
        "requested_bytes": diagnosis.requested_bytes,
        "free_bytes": diagnosis.free_bytes,
        "limit_bytes": diagnosis.limit_bytes,
        "cause": diagnosis.cause.value,
        "key_line": {"number": key.number, "text": key.text} if key is not None else None,
        "evidence": [{"number": e.number, "says": e.says} for e in diagnosis.evidence],
        "summary": diagnosis.summary,
        "next_steps": [{"change": _plain(step.change), "why": step.why} for step in diagnosis.next_steps],
        "missing": list(diagnosis.missing),
    }


def _plain(change: dict[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in change.items()}
