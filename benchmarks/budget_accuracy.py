"""How close the budget comes to what llama.cpp reserved, over all measured runs.

    python benchmarks/budget_accuracy.py [--architecture NAME] [--misses N] [--every N]

Prints, by field, how many numbers are exact; for compute buffers median, 95th percentile, worst and how many are more
than 5 % low, by architecture and over all; and the time of one budget.
"""

import argparse
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.budget import zoo

LOW = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architecture", help="only this one")
    parser.add_argument("--misses", type=int, default=0, help="print so many misses of each field")
    parser.add_argument("--every", type=int, default=1, help="only every N-th run")
    options = parser.parse_args()
    exact: dict[str, list[bool]] = defaultdict(list)
    compute: dict[str, list[float]] = defaultdict(list)
    times: list[float] = []
    shown: dict[str, int] = defaultdict(int)
    rows = [row for row in zoo.rows() if zoo.is_first_context(row)]
    rows = [row for row in rows if options.architecture in (None, row["arch"])][:: options.every]
    for row in rows:
        zoo.model(row["model"])
        start = time.perf_counter()
        budget = zoo.budget(row)
        times.append(time.perf_counter() - start)
        for field in zoo.compare(row, budget):
            if field.name == "compute":
                if row["compute_odd"] or not field.want:
                    continue
                compute[row["arch"]].append((field.got - field.want) / field.want)
            exact[field.name].append(field.want == field.got)
            if field.want != field.got and shown[field.name] < options.misses:
                shown[field.name] += 1
                print(row["model"], row["cfg"], row["build"], *row["devices"], field)
    _print(exact, compute, times, len(rows))


def _print(exact: dict[str, list[bool]], compute: dict[str, list[float]], times: list[float], n_rows: int) -> None:
    print(f"{n_rows} runs")
    for name, hits in exact.items():
        print(f"  {name:14} {sum(hits):6} of {len(hits):6} exact  {sum(hits) / len(hits):8.3%}")
    print("compute buffers, error relative to the measured size")
    for architecture in sorted(compute):
        _line(architecture, compute[architecture])
    _line("all", [error for errors in compute.values() for error in errors])
    print(f"one budget: median {statistics.median(times) * 1e3:.2f} ms, worst {max(times) * 1e3:.1f} ms")


def _line(name: str, errors: list[float]) -> None:
    if not errors:
        return
    sizes = sorted(abs(error) for error in errors)
    exact = sum(size == 0 for size in sizes) / len(sizes)
    p95 = sizes[min(len(sizes) - 1, int(0.95 * len(sizes)))]
    low = sum(error < -LOW for error in errors)
    print(
        f"  {name:18} {len(sizes):5}  exact {exact:7.2%}  median {statistics.median(sizes):7.3%}  95 % {p95:7.2%}"
        f"  worst {sizes[-1]:8.2%}  over 5 % low {low}"
    )


if __name__ == "__main__":
    main()
