"""Fix walks over real models, devices and settings, in worlds that do what the budget says and in worlds that do not.

Run: python -m benchmarks.wizard_walks [--walks 2000] [--seed 1] [--world honest|less|more|process|cap|build|rival]
Prints, per kind of world, how the walks ended, how many launches they took and which rules were broken.
"""

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace

from kvstudio.advise.fixes import FIXES, useless
from kvstudio.advise.learned import situation
from kvstudio.advise.plan import MAX_LAUNCHES, Plan, World, differs, start
from kvstudio.advise.plan_values import TrialKind
from kvstudio.advise.rank import order
from kvstudio.advise.situation import need_of
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.advise.world import Reality, binary, device
from tests.budget import zoo

WORLDS = ("honest", "less", "more", "process", "cap", "build", "rival")
_NEW, _OLD = binary("/new/llama-server", 11434), binary("/old/llama-server", 11000)


@dataclass(frozen=True)
class Draw:
    """One walk to make: what is believed, what is wanted, what is true."""

    label: str
    world: World
    wanted: LaunchConfig
    reality: Reality


def draw(rng: random.Random, kind: str, names: tuple[str, ...]) -> Draw:
    """A random model, command and world of one kind."""
    name = rng.choice(names)
    model = zoo.model(name)
    sizes = [rng.choice((4, 6, 8, 12, 16, 24, 48, 80)) for _ in range(rng.choice((1, 1, 1, 2, 2, 4)))]
    devices = tuple(device(i, size, size * rng.choice((1.0, 0.9, 0.5))) for i, size in enumerate(sizes))
    host = Device("Host", "CPU", total_bytes=64 * GIB, free_bytes=rng.choice((16, 60)) * GIB)
    wanted = LaunchConfig(
        model_path="m.gguf",
        fit=False,
        n_gpu_layers=rng.choice((99, 99, 20)),
        n_ctx=rng.choice((None, 4096, 32768, 131072)),
        n_parallel=rng.choice((None, 1, 4, 32)),
        n_ubatch=rng.choice((None, None, 2048)),
        cache_type_k=rng.choice((None, None, "q8_0")),
        flash_attn=rng.choice((None, None, "off")),
        tensor_split=rng.choice((None, tuple(1.0 for _ in devices))) if len(devices) > 1 else None,
    )
    world = World(model, devices, host, binary=_NEW)
    label = f"{name} {sizes} {wanted.typed()}"
    return Draw(label, *_twist(rng, kind, world, wanted))


def _twist(rng: random.Random, kind: str, world: World, wanted: LaunchConfig) -> tuple[World, LaunchConfig, Reality]:
    """The same world with what is peculiar to its kind."""
    if kind in ("less", "more"):
        factor = rng.choice((0.4, 0.7, 0.85) if kind == "less" else (1.1, 1.4))
        true = tuple(replace(d, free_bytes=int((d.free_bytes or 0) * factor)) for d in world.devices)
        return world, wanted, Reality(replace(world, devices=true))
    if kind == "process":
        free = sum(d.free_bytes or 0 for d in world.devices)
        return world, wanted, Reality(world, total_bytes=int(free * rng.choice((0.3, 0.6, 0.9))))
    if kind == "cap":
        return world, wanted, Reality(world, cap_bytes=rng.choice((1, 2, 4)) * GIB)
    if kind == "build":
        return replace(world, binaries=(_OLD,)), wanted, Reality(world, broken=("llama-server",))
    if kind == "rival":
        first = world.devices[0]
        held = int((first.free_bytes or 0) * rng.choice((0.3, 0.6)))
        busy = replace(
            first, free_bytes=(first.free_bytes or 0) - held, processes=(DeviceProcess(4182, "python3", held),)
        )
        world = replace(world, devices=(busy, *world.devices[1:]))
        return world, wanted, Reality(world)
    return world, wanted, Reality(world)


def broken_rules(drawn: Draw, plan: Plan, honest: bool) -> list[str]:
    """The rules of a walk that this one broke."""
    found = []
    if plan.verdict is None:
        return ["did not end"]
    if drawn.reality.launches > MAX_LAUNCHES:
        found.append("too many launches")
    for attempt in plan.attempts:
        trial = attempt.trial
        if trial.parent is None:
            continue
        parent = plan.attempts[trial.parent]
        if len(differs(plan, parent.trial, trial)) != 1:
            found.append("more than one variable")
        if trial.kind is TrialKind.CHANGE and parent.diagnosis is not None:
            culprit = situation(plan, parent.trial.config, parent.diagnosis).culprit
            before, after = parent.trial.predicted, trial.predicted
            if before is not None and after is not None and need_of(after, culprit) > need_of(before, culprit):
                found.append(f"worse for the culprit: {trial.variable}")
    if plan.verdict.outcome == "verified":
        config = plan.verdict.config
        if not any(a.worked and a.trial.config == config for a in plan.attempts):
            found.append("verified without a run")
    elif honest and (name := fits_by(plan)) is not None:
        found.append(f"missed {name}")
    return found


def fits_by(plan: Plan) -> str | None:
    """A ranked variable that alone makes the command fit, by the numbers."""
    first = plan.attempts[0]
    here = situation(plan, plan.wanted, first.diagnosis)
    for name in order(here.failing):
        if useless(name, here.failing, here) is None and FIXES[name](here) is not None:
            return name
    return None


def walk_all(kind: str, walks: int, seed: int, names: tuple[str, ...], seconds: float, verbose: bool) -> None:
    """Make the walks of one kind of world and print what came of them."""
    rng = random.Random(f"{seed} {kind}")
    ends, launches, causes, rules = Counter(), Counter(), Counter(), Counter()
    failed, began = 0, time.perf_counter()
    made = 0
    while made < walks and time.perf_counter() - began < seconds:
        made += 1
        drawn = draw(rng, kind, names)
        plan = drawn.reality.walk(start(drawn.world, drawn.wanted))
        if plan.attempts[0].worked:
            ends["works as given"] += 1
            continue
        failed += 1
        ends[plan.verdict.outcome if plan.verdict else "none"] += 1
        launches[drawn.reality.launches] += 1
        cause = plan.verdict.root_cause if plan.verdict else None
        causes[cause.variable if cause else "none"] += 1
        for rule in broken_rules(drawn, plan, kind == "honest"):
            rules[rule] += 1
            if verbose:
                sys.stdout.write(f"  {rule}: {drawn.label}\n")
    mean = sum(n * count for n, count in launches.items()) / max(1, failed)
    took = time.perf_counter() - began
    sys.stdout.write(
        f"{kind}: {made} walks in {took:.0f} s, {failed} of commands that fail\n"
        f"  ends      {dict(ends.most_common())}\n"
        f"  launches  mean {mean:.2f}, {dict(sorted(launches.items()))}\n"
        f"  causes    {dict(causes.most_common())}\n"
        f"  broken    {dict(rules.most_common()) or 'none'}\n"
    )
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walks", type=int, default=2000, help="per kind of world")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", choices=WORLDS, action="append")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, per kind of world")
    parser.add_argument("--verbose", action="store_true", help="name each walk that broke a rule")
    args = parser.parse_args()
    names = tuple(sorted(zoo.shapes()))
    for kind in args.world or WORLDS:
        walk_all(kind, args.walks, args.seed, names, args.seconds, args.verbose)


if __name__ == "__main__":
    main()
