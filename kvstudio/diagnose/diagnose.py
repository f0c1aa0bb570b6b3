"""Lines and events of a log, and a budget if there is one, to the one line that decided and what it means."""

from collections.abc import Sequence
from dataclasses import replace

from kvstudio.budget.values import Budget
from kvstudio.diagnose import children, failure, memory, quiet, refusal, wrapped
from kvstudio.diagnose import facts as run_facts
from kvstudio.diagnose.quoting import Texts
from kvstudio.diagnose.timeline import last_run
from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.runlog.parse import parse
from kvstudio.runlog.values import LogEvent, LogLine


def diagnose(
    lines: Sequence[LogLine], events: Sequence[LogEvent] | None = None, budget: Budget | None = None
) -> Diagnosis:
    """What the log says happened.

    `lines` may be a part of the log: those that are quoted are looked up by number. `events` default to what `lines`
    state. An unresolved refusal of memory decides; then what ended the run otherwise; then a refusal that was
    overcome; else nothing failed, or the reason is not in the text. Of servers whose lines a router mixed, the last
    that failed for a reason the text gives is told.
    """
    texts = {line.number: line for line in lines}
    events = wrapped.join(parse(lines) if events is None else events, texts)
    parts = children.split(events, texts)
    found = [(part, _one(part.events, texts, budget)) for part in parts] if len(parts) > 1 else []
    failed = [(part, diagnosis) for part, diagnosis in found if diagnosis.outcome is Outcome.FAILED]
    if not failed:
        return _one(events, texts, budget)
    explained = [pair for pair in failed if pair[1].memory_class != "unknown"]
    part, chosen = (explained or failed)[-1]
    which = f"the one of {part.model}" if part.model is not None else "one of them"
    note = f"The text mixes the lines of {len(parts)} servers that a router started; this is about {which}."
    return replace(chosen, notes=(*chosen.notes, note))


def _one(events: Sequence[LogEvent], texts: Texts, budget: Budget | None) -> Diagnosis:
    run = last_run(events)
    facts = run_facts.gather(run)
    found = failure.find(run)
    if found is not None and not (found.resolved and memory.ended_otherwise(run, found)):
        return memory.diagnose(run, found, texts, facts, budget)
    other = (quiet.over_recommended(run, texts) if found is None else None) or refusal.diagnose(run, texts, facts)
    if other is not None:
        return other
    return memory.diagnose(run, found, texts, facts, budget) if found is not None else quiet.diagnose(run, texts)
