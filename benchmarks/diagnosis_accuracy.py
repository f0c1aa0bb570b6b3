"""How many logs are read right: key line, stage, device, bytes and outcome, by the kind of log and by wrapper dress.

Run as `python -m benchmarks.diagnosis_accuracy`, for it shares its logs with the tests.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable

from kvstudio.diagnose.read import read_log
from kvstudio.diagnose.values import Diagnosis
from tests.diagnose.samples import VARIANTS, Sample, load, misses

FACTS = ("key_line", "stage", "device", "requested_bytes", "outcome")
REACH = {"key_line": 95, "stage": 95, "device": 98, "requested_bytes": 98, "outcome": 95}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wrong", action="store_true", help="list what is read wrong")
    options = parser.parse_args()
    samples = load()
    by_kind: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_kind[sample.kind].append(sample)
    print(f"{'logs':26}{'n':>6}" + "".join(f"{fact:>17}" for fact in FACTS))
    for kind, group in sorted(by_kind.items()):
        report(kind, ((s, read_log(s.data).diagnosis, 0) for s in group), options.wrong)
    report("all", ((s, read_log(s.data).diagnosis, 0) for s in samples), False)
    for name, (change, shift) in VARIANTS.items():
        report(f"  {name}"[:26], ((s, read_log(change(s.data)).diagnosis, shift) for s in samples), options.wrong)
    harmless_as_failure(samples)
    beyond(samples)


def report(name: str, read: Iterable[tuple[Sample, Diagnosis, int]], show: bool) -> None:
    """One row of percentages; facts that no line proves count as wrong here, so that the figure hides nothing."""
    right: Counter[str] = Counter()
    n = 0
    for sample, diagnosis, shift in read:
        n += 1
        wrong = misses(sample, diagnosis, shift=shift)
        for fact in FACTS:
            right[fact] += fact not in wrong and fact not in sample.beyond
        if wrong and show:
            print(f"    {sample.name}: {wrong}")
    print(f"{name:26}{n:6}" + "".join(f"{100 * right[fact] / n:15.1f} %" for fact in FACTS))


def harmless_as_failure(samples: list[Sample]) -> None:
    told = [s for s in samples if s.expected["outcome"] == "ok"]
    wrong = [s.name for s in told if read_log(s.data).diagnosis.outcome == "failed"]
    print(f"\nharmless logs called a failure: {len(wrong)} of {len(told)} {wrong or ''}")


def beyond(samples: list[Sample]) -> None:
    print("\nfacts that no line of their log proves (counted as wrong above):")
    for sample in samples:
        for fact, why in sample.beyond.items():
            print(f"  {sample.name}: {fact}: {why}")
    print("to reach: " + ", ".join(f"{fact} {percent} %" for fact, percent in REACH.items()))


if __name__ == "__main__":
    main()
