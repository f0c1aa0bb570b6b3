"""Steps after a working run: which one is nearest to what was wanted, what can be put back, where the edge lies."""

from kvstudio.advise.fixes import FIXES, value_of, with_value
from kvstudio.advise.learned import contradicted, situation
from kvstudio.advise.plan_values import Trial, TrialKind
from kvstudio.advise.record import Record, changed, differs_from_wanted
from kvstudio.advise.steps import partial_change, single_change
from kvstudio.launch.config import LaunchConfig

EDGE_LAUNCHES = 2
#: An edge closer than this share of the value is close enough.
EDGE_CLOSE = 0.1
_SIZES = ("n_ctx", "n_parallel", "n_gpu_layers")


def best_working(record: Record) -> int | None:
    """The working attempt nearest to what was wanted.

    The smallest run is only a test as long as a milder single change may work; then it counts, if it is one itself.
    """
    working = [i for i, a in enumerate(record.attempts) if a.worked and i not in record.undone]
    real = [i for i in working if record.attempts[i].trial.kind is not TrialKind.SMALLEST]
    if real:
        return min(real, key=lambda i: (_distance(record, record.attempts[i].trial.config), -i))
    if not working or single_change(record) is not None:
        return None
    smallest = working[-1]
    alone = len(differs_from_wanted(record, record.attempts[smallest].trial.config)) == 1
    return smallest if alone or partial_change(record) is None else None


def _distance(record: Record, config: LaunchConfig) -> tuple[int, float]:
    """How far from what was wanted: variables changed, then the share of the context and slots lost."""
    now, want = record.estimate(config).config, record.estimate(record.wanted).config
    lost = (1 - now.n_ctx / max(1, want.n_ctx)) + (1 - now.n_parallel / max(1, want.n_parallel))
    return len(differs_from_wanted(record, config)), lost


def put_back(record: Record, best: int) -> Trial | None:
    """Revert one of several changes; what still works without it was not needed.

    Those that the numbers do not need come first: they bring the result nearer to what was wanted while launches last.
    """
    config = record.attempts[best].trial.config
    differing = differs_from_wanted(record, config)
    if len(differing) < 2:
        return None
    reverts = [(name, with_value(config, name, value_of(record.wanted, name))) for name in differing]
    for variable, reverted in sorted(reverts, key=lambda revert: record.estimate(revert[1]).fits is False):
        if record.was_tried(reverted) or record.was_skipped(TrialKind.PUT_BACK, variable):
            continue
        wanted = value_of(record.wanted, variable)
        why = "Put back, to see whether this change was needed at all."
        return Trial(
            TrialKind.PUT_BACK, reverted, best, variable, value_of(config, variable), wanted, f"Put back {variable}",
            why, "", record.estimate(reverted), record.freed,
        )  # fmt: skip
    return None


def edge(record: Record, best: int) -> Trial | None:
    """A value between the largest that worked and the smallest that failed, for a variable that is a size."""
    config = record.attempts[best].trial.config
    differing = differs_from_wanted(record, config)
    if len(differing) != 1 or differing[0] not in _SIZES:
        return None
    variable = differing[0]
    left = min(EDGE_LAUNCHES - record.tries(TrialKind.EDGE), record.launches_left)
    if left <= 0 or record.was_skipped(TrialKind.EDGE, variable):
        return None
    good, bad = _size(record, config, variable), _smallest_failing(record, config, variable)
    if bad is None or bad - good <= max(_step(record, config, variable), EDGE_CLOSE * good):
        return None
    middle = _between(record, config, variable, good, bad)
    if middle is None or middle <= good:
        return None
    tried = config.evolve(**{variable: middle})
    if record.was_tried(tried):
        return None
    why = f"{good} works and {bad} does not; the edge lies between them. {_takes(record, left)}"
    return Trial(
        TrialKind.EDGE, tried, best, variable, value_of(config, variable), middle, f"Edge: {variable} {middle}",
        why.strip(), "", record.estimate(tried), record.freed,
    )  # fmt: skip


def _takes(record: Record, launches: int) -> str:
    """How long the search for the edge takes at most, by the launches so far."""
    seconds = record.slowest_s * launches
    if seconds <= 0:
        return ""
    about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
    return f"At most {launches} more {'launch' if launches == 1 else 'launches'}, about {about}."


def _between(record: Record, config: LaunchConfig, variable: str, good: int, bad: int) -> int | None:
    """The next value: where the numbers put the edge, else the middle; None when nothing speaks for a better one."""
    predicted = FIXES[variable](situation(record, record.wanted, record.first.diagnosis))
    if predicted is not None:
        found = _size(record, predicted.config, variable)
        if good * (1 + EDGE_CLOSE) < found < bad:
            return found
        if not contradicted(record):
            return None  # what works is where the numbers put the edge, and no run has proved them wrong
    step = _step(record, config, variable)
    return (good + bad) // 2 // step * step


def _smallest_failing(record: Record, config: LaunchConfig, variable: str) -> int | None:
    failed = [
        _size(record, a.trial.config, variable)
        for a in record.attempts
        if not a.worked and a.trial.freed == record.freed and set(changed(record, config, a.trial.config)) <= {variable}
    ]
    return min(failed, default=None)


def _step(record: Record, config: LaunchConfig, variable: str) -> int:
    if variable != "n_ctx":
        return 1
    return 256 * (1 if record.estimate(config).config.kv_unified else max(1, config.n_parallel or 1))


def _size(record: Record, config: LaunchConfig, variable: str) -> int:
    budget = record.estimate(config)
    if variable == "n_gpu_layers":
        return budget.offloaded_layers[0]
    value: int = getattr(budget.config, variable)
    return value
