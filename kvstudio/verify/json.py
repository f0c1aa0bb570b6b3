"""A Run as the JSON object the command line prints."""

from typing import Any

from kvstudio.budget.values import Budget
from kvstudio.diagnose.json import to_json as diagnosis_json
from kvstudio.runlog.values import Phase
from kvstudio.verify.compare import compare
from kvstudio.verify.values import PrintedBuffer, Run

SCHEMA = "kvstudio.launch/1"


def to_json(run: Run, budget: Budget | None = None) -> dict[str, Any]:
    """Integers in bytes; what is not known is null. `budget`: what was estimated before, beside what was printed."""
    return {
        "schema": SCHEMA,
        "outcome": run.outcome.value,
        # A launch that ended while it was still fitting has reached none of the stages a real load has.
        "reached": run.reached.value if run.reached and run.reached is not Phase.FIT else None,
        "seconds": round(run.seconds, 3),
        "says": run.says,
        "message": run.message,
        "binary": _binary(run),
        "argv": list(run.argv),
        "env": dict(run.env),
        "spelled": list(run.spelled),
        "lost": list(run.lost),
        "exit_code": run.exit_code,
        "signal": run.signal,
        "phases": _phases(run),
        "buffers": [_buffer(buffer) for buffer in run.buffers],
        "sizes": [
            {
                "device": s.device,
                "kind": s.kind,
                "estimated": s.estimated,
                "printed": s.measured,
                "difference": s.difference,
            }
            for s in compare(budget, run)
        ],
        "peak": dict(run.peak),
        "peak_counted": list(run.counted),
        "overhead": dict(run.overhead),
        "free_before": dict(run.free_before),
        "pauses": [
            {"line": p.line, "at": round(p.at_s, 3), "seconds": round(p.seconds, 3), "phase": p.phase.value}
            for p in run.pauses
        ],
        "checks": [{"check": c.check, "ok": c.ok, "evidence": c.evidence, "lines": list(c.lines)} for c in run.checks],
        "prompts": [
            {"kind": kind, "ok": ok, "seconds": round(seconds, 3), "says": says}
            for kind, ok, seconds, says in run.prompts
        ],
        "answer": run.answer,
        "diagnosis": diagnosis_json(run.diagnosis) if run.diagnosis else None,
        "log": run.log_path,
    }


def _binary(run: Run) -> dict[str, Any] | None:
    if run.binary is None:
        return None
    build = f"b{run.binary.build}" if run.binary.build is not None else None
    return {"path": run.binary.path, "version": run.binary.version, "build": build}


def _phases(run: Run) -> list[dict[str, Any]]:
    began = dict(run.phase_times)
    return [
        {"phase": phase.value, "state": state, "at": round(began[phase], 3) if phase in began else None}
        for phase, state in run.phases
    ]


def _buffer(buffer: PrintedBuffer) -> dict[str, Any]:
    return {
        "name": buffer.name,
        "device": buffer.device,
        "kind": buffer.kind,
        "bytes": buffer.bytes,
        "line": buffer.line,
    }
