"""Compute buffers beside what llama.cpp reserved, by family of models and topology.

Usage: python -m benchmarks.compute_accuracy [PATTERN [N]]
PATTERN: only models and architectures whose name contains it; N: only every N-th run.
"""

import sys
from collections import defaultdict
from statistics import median
from typing import Any

from kvstudio.budget.compute import compute_buffers
from kvstudio.budget.effective import resolve
from kvstudio.budget.placement import place
from tests.budget import zoo

_FAMILIES = (
    ("MLA", ("deepseek2", "mistral4", "plm", "minicpm3")),
    ("sparse attention", ("deepseek32", "deepseek4", "glm-dsa", "minimax-m3")),
    ("gemma n/4", ("gemma3n", "gemma4")),
    ("recurrent", ("mamba", "mamba2", "rwkv6", "rwkv7")),
    ("hybrid", ("jamba", "granitehybrid", "falcon-h1", "nemotron_h", "nemotron_h_moe", "qwen3next", "qwen35",
                "qwen35moe", "lfm2")),
    ("encoder", ("bert", "nomic-bert", "gemma-embedding", "t5")),
    ("experts", ("qwen3moe", "qwen2moe", "olmoe", "dots1", "bailingmoe2", "gpt-oss", "grok", "phimoe", "minimax-m2",
                 "mimo2")),
)  # fmt: skip


def main() -> int:
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    rows = [r for r in zoo.rows() if zoo.is_first_context(r) and (pattern in r["model"] or pattern in r["arch"])]
    rows = rows[:: int(sys.argv[2])] if len(sys.argv) > 2 else rows
    for title, odd in (("Backends that have every operation", False), ("Backends that lack operations", True)):
        _table(title, [m for row in rows if bool(row["compute_odd"]) == odd for m in _measure(row)])
    return 0


def _measure(row: dict[str, Any]) -> list[tuple[dict[str, Any], str, int, int]]:
    """(row, where, ours, theirs) of each buffer."""
    model, config, devices = zoo.model(row["model"]), zoo.config(row), zoo.devices(row)
    effective = resolve(model, config, len(devices), config.build)
    placement = place(model, effective, devices, config)
    try:
        found = compute_buffers(model, effective, placement, config)
    except LookupError:
        found = {}
    names = dict(zip(placement.devices, placement.buffer_types, strict=True))
    host = next((name for name in found if name not in names.values()), "")
    return [
        (row, where, found.get(host if where == "host" else names.get(where, where), (0,))[0], want["compute"])
        for where, want in row["want"].items()
    ]


def _table(title: str, measured: list[tuple[dict[str, Any], str, int, int]]) -> None:
    if not measured:
        return
    print(f"\n{title}\n{'family x topology':<34}{'n':>6}{'exact':>8}{'median':>9}{'95th':>9}{'worst':>9}{'low':>9}")
    groups: dict[str, list[float]] = defaultdict(list)
    for row, where, ours, theirs in measured:
        error = (ours - theirs) / max(theirs, 1)
        for group in ("all", f"{_family(row)} x {_topology(row, where)}"):
            groups[group].append(error)
    for group, errors in sorted(groups.items()):
        sizes = sorted(map(abs, errors))
        exact = sum(1 for e in errors if e == 0) / len(errors)
        print(
            f"{group:<34}{len(errors):>6}{exact:>8.1%}{median(sizes):>9.2%}{sizes[int(0.95 * (len(sizes) - 1))]:>9.2%}"
            f"{sizes[-1]:>9.2%}{min(0.0, *errors, 0.0):>9.2%}"
        )
    print("ten worst:")
    for row, where, ours, theirs in sorted(measured, key=lambda m: -abs(m[2] - m[3]) / max(m[3], 1))[:10]:
        error = (ours - theirs) / max(theirs, 1)
        print(f"  {error:>9.2%}  {row['model']} {row['build']} {row['cfg']} {where}: {ours} for {theirs}")


def _family(row: dict[str, Any]) -> str:
    return next((name for name, archs in _FAMILIES if row["arch"] in archs), "dense")


def _topology(row: dict[str, Any], where: str) -> str:
    devices = row["devices"]
    side = "host" if where == "host" and devices else "device"
    if not devices:
        return "CPU only"
    if row["offloaded"] and row["offloaded"][0] < row["offloaded"][1]:
        return f"part {side}"
    backend = devices[0].rstrip("0123456789")
    return f"{len(devices)} {backend} {side}" if len(devices) < 3 else f"3+ {backend} {side}"


if __name__ == "__main__":
    sys.exit(main())
