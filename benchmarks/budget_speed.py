"""How much CPU time a budget takes when one setting moves, and what turning the budget round costs.

Usage: python -m benchmarks.budget_speed [MODEL ...] [--devices N] [--backend NAME] [--json]

Every series starts with nothing remembered, so its first step pays for what the others share. Figures are process CPU
time in milliseconds (`time.process_time`), so that a busy machine does not spoil them.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from kvstudio.budget.estimate import estimate
from kvstudio.budget.fit import fit
from kvstudio.budget.solve import Launch, largest_n_ctx, most_gpu_layers, most_parallel
from kvstudio.devices.values import Device
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.units import GIB
from tests.budget import zoo

#: One of each kind of graph that is heavy to follow, and a plain one.
MODELS = (
    "qwen3-235b-a22b",
    "kimi-k2-1t",
    "glm5-744b",
    "deepseek-v4-flash",
    "minimax-m3",
    "qwen3next-80b",
    "gemma4-31b",
    "qwen3-32b",
)
_STEPS = 40
_PARALLEL = 32
_CARD_BYTES = 24 * GIB
_HOST_BYTES = 512 * GIB

Step = Callable[[], object]


def machine(n: int, backend: str) -> tuple[Device, ...]:
    return tuple(Device(f"{backend}{i}", backend, "", _CARD_BYTES, _CARD_BYTES - GIB) for i in range(n))


def series(model: ModelInfo, devices: tuple[Device, ...]) -> Iterator[tuple[str, list[Step]]]:
    """Names of settings, and the budgets along the way of each."""
    host = Device("Host", "CPU", "", _HOST_BYTES, _HOST_BYTES)
    plain = LaunchConfig(n_ctx=32768)
    slots = model.n_layer_all + 1

    def budget(config: LaunchConfig, used: tuple[Device, ...] = devices) -> Step:
        return lambda: estimate(model, config, used, host)

    yield "n_ctx", [budget(plain.evolve(n_ctx=8192 + 1024 * i)) for i in range(_STEPS)]
    yield "n_gpu_layers", [budget(plain.evolve(n_gpu_layers=i)) for i in range(slots + 1)]
    yield "tensor_split", [budget(plain.evolve(tensor_split=split)) for split in _splits(len(devices))]
    if model.n_expert:
        yield "n_cpu_moe", [budget(plain.evolve(n_cpu_moe=i)) for i in range(model.n_layer + 1)]
    yield "devices", [budget(plain, used) for used in _toggled(devices)]
    yield "n_parallel", [budget(plain.evolve(n_parallel=i)) for i in range(1, _PARALLEL + 1)]
    launch = Launch(model, plain.evolve(n_gpu_layers=slots * 2 // 3), devices, host)
    yield "largest_n_ctx", [lambda: largest_n_ctx(launch)]
    yield "most_parallel", [lambda: most_parallel(launch)]
    yield "most_gpu_layers", [lambda: most_gpu_layers(launch)]
    yield "fit", [lambda: fit(model, LaunchConfig(), devices, host)]


def _splits(n: int) -> list[tuple[float, ...]]:
    """Proportions of which one device gives a little to another at every step."""
    chance = random.Random(n)
    shares = [10] * n
    found = []
    for _ in range(_STEPS):
        giver, taker = chance.randrange(n), chance.randrange(n)
        given = min(shares[giver], 1)
        shares[giver] -= given
        shares[taker] += given
        found.append(tuple(map(float, shares)))
    return found


def _toggled(devices: tuple[Device, ...]) -> list[tuple[Device, ...]]:
    """Some of the devices, one switched on or off at every step."""
    chance = random.Random(len(devices))
    on = set(range(len(devices)))
    found = []
    for _ in range(_STEPS):
        on ^= {chance.randrange(len(devices))}
        found.append(tuple(devices[i] for i in sorted(on)))
    return found


def measure(model: ModelInfo, steps: list[Step]) -> list[float]:
    model.memo.clear()
    spent = []
    for step in steps:
        start = time.process_time()
        step()
        spent.append((time.process_time() - start) * 1000)
    return spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--backend", default="CUDA")
    parser.add_argument("--json", action="store_true", help="one object a line instead of a table")
    options = parser.parse_args()
    devices = machine(options.devices, options.backend)
    for name in options.models:
        model = zoo.model(name)
        if not options.json:
            sys.stdout.write(f"\n{name} on {len(devices)} {options.backend}, ms of CPU time\n")
            sys.stdout.write(f"  {'':<18}{'steps':>7}{'first':>9}{'median':>9}{'95 %':>9}{'worst':>9}\n")
        for setting, steps in series(model, devices):
            first, *rest = measure(model, steps)
            rest = sorted(rest or [first])
            figures = (first, statistics.median(rest), rest[int(0.95 * (len(rest) - 1))], rest[-1])
            if options.json:
                sys.stdout.write(json.dumps({"model": name, "setting": setting, "ms": figures}) + "\n")
            else:
                row = "".join(f"{figure:>9.2f}" for figure in figures)
                sys.stdout.write(f"  {setting:<18}{len(steps):>7}{row}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
