"""Fix walks over real models, devices and settings, in worlds that do what the budget says and in worlds that do not.

Run: python -m benchmarks.wizard_walks [--walks 500] [--seed 1] [--world KIND]... [--user patient|restless] [--verbose]
Prints, per kind of world, how the walks of commands that fail ended, how many launches they took, and which rules were
broken. A restless user skips, undoes, goes back, stops, and comes back after a crash, at pages drawn at random.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from kvstudio.advise.learned import situation
from kvstudio.advise.plan import MAX_LAUNCHES, Plan, World, can_undo, differs, start
from kvstudio.advise.plan_values import TrialKind
from kvstudio.case.walks import Walks
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.launch.config import LaunchConfig
from kvstudio.units import GIB
from tests.advise.world import Reality, binary, device
from tests.budget import zoo

WORLDS = ("honest", "less", "more", "process", "cap", "build", "rival", "remote")
USERS = ("patient", "restless")
#: Pages a restless user may see before the walk is taken for endless.
MOST_PAGES = 80
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
    if kind == "remote":
        servers = tuple(f"10.0.0.{i}:50052" for i in range(2, 2 + rng.choice((1, 2))))
        remote = tuple(
            Device(f"RPC0[{server}]", "RPC", total_bytes=size * GIB, free_bytes=size * GIB)
            for server, size in ((server, rng.choice((8, 16, 24))) for server in servers)
        )
        world = replace(world, devices=(*remote, *world.devices))
        split = tuple(1.0 for _ in world.devices) if wanted.tensor_split else None
        return world, wanted.evolve(rpc=servers, tensor_split=split), Reality(world)
    return world, wanted, Reality(world)


def walk_restless(drawn: Draw, rng: random.Random) -> tuple[Plan, list[str]]:
    """A walk with a person who changes their mind, and what was wrong with it."""
    plan, earlier, wrong, pages = start(drawn.world, drawn.wanted), [], [], 0
    with tempfile.TemporaryDirectory(prefix="kvstudio-walks-") as folder:
        while plan.pending is not None and pages < MOST_PAGES:
            pages += 1
            at = rng.random()
            if at < 0.12:
                earlier.append(plan)
                plan = plan.skip()
            elif at < 0.2 and earlier:
                plan = earlier.pop()
            elif at < 0.27 and plan.attempts:
                # As after a crash: from what is on disk, with nothing worked out yet.
                walks = Walks(folder)
                walks.keep(plan.stop() if rng.random() < 0.5 else plan)
                kept = walks.load(drawn.wanted)
                back = kept.plan(replace(drawn.world).model) if kept is not None else None
                if back is None or (back.pending, back.attempts) != (plan.pending, plan.attempts):
                    wrong.append("resumed otherwise")
                plan = back or plan
            elif at < 0.29:
                return plan.stop(), wrong
            else:
                earlier.append(plan)
                plan = plan.ran(drawn.reality.attempt(plan.pending))
                if can_undo(plan.attempts[-1].trial) and rng.random() < 0.2:
                    earlier.append(plan)
                    plan = plan.undo()
    return plan, wrong


def broken_rules(drawn: Draw, plan: Plan) -> list[str]:
    """The rules of a walk that this one broke."""
    if plan.verdict is None:
        return ["did not end"]
    found = ["too many launches"] if len(plan.attempts) > MAX_LAUNCHES else []
    for i, attempt in enumerate(plan.attempts):
        trial = attempt.trial
        if any(a.trial.config == trial.config and a.trial.freed == trial.freed for a in plan.attempts[:i]):
            found.append("launched twice")
        if trial.parent is None:
            continue
        parent = plan.attempts[trial.parent]
        if len(differs(plan, parent.trial, trial)) != 1:
            found.append("more than one variable")
        refused = parent.diagnosis is not None and parent.diagnosis.memory_class == "memory"
        if trial.kind is TrialKind.CHANGE and refused and parent.trial.predicted and trial.predicted:
            here = situation(plan, parent.trial.config, parent.diagnosis)
            if here.need_of_culprit(trial.predicted) > here.need_of_culprit(parent.trial.predicted):
                found.append(f"worse for the culprit: {trial.variable}")
    cause = plan.verdict.root_cause
    if cause is not None:
        failed, worked = plan.attempts[cause.failed_attempt], plan.attempts[cause.worked_attempt]
        proven = (cause.variable,) == differs(plan, failed.trial, worked.trial)
        if failed.worked or not worked.worked or not proven:
            found.append("root cause without a pair of runs")
    if plan.verdict.outcome == "verified":
        config = plan.verdict.config
        if not any(a.worked and a.trial.config == config for a in plan.attempts):
            found.append("verified without a run")
        if cause is None and not plan.attempts[0].worked and not plan.verdict.not_separated:
            found.append("nothing said of what was not separated")
    return found


def fits_somehow(drawn: Draw) -> LaunchConfig | None:
    """Settings that truly fit, if any do: layers placed in every way, all else at its smallest."""
    effective = drawn.world.estimate(drawn.wanted).config
    base = drawn.wanted.evolve(n_ctx=min(4096, effective.n_ctx), n_parallel=1, n_ubatch=128, swa_full=None)
    types: list[dict[str, Any]] = [{}]
    if drawn.wanted.flash_attn != "off":
        types.insert(0, {"cache_type_k": "q4_0", "cache_type_v": "q4_0"})
    for config in _placed(drawn, base):
        for change in types:
            worked, _, _ = drawn.reality.run(config.evolve(**change))
            drawn.reality.launches -= 1
            if worked:
                return config.evolve(**change)
    return None


def _placed(drawn: Draw, base: LaunchConfig) -> Iterator[LaunchConfig]:
    n_layer = drawn.world.model.n_layer + 1
    layers = (base.n_gpu_layers, n_layer * 3 // 4, n_layer // 2, n_layer // 4, 0)
    splits = dict.fromkeys((base.tensor_split, None))
    experts = (None, True) if drawn.world.model.n_expert else (None,)
    programs = (base.program, *(other.path for other in drawn.world.binaries))
    for layer, split, cpu_moe, program in product(layers, splits, experts, programs):
        yield base.evolve(n_gpu_layers=layer, tensor_split=split, cpu_moe=cpu_moe, program=program)


def walk_all(kind: str, user: str, walks: int, seed: int, names: tuple[str, ...], seconds: float, verbose: bool) -> int:
    """Make the walks of one kind of world, print what came of them; returns how many rules were broken."""
    rng = random.Random(f"{seed} {kind} {user}")
    ends, launches, causes, rules = Counter(), Counter(), Counter(), Counter()
    failed, began, slowest = 0, time.perf_counter(), (0.0, "none")
    made = 0
    while failed < walks and time.perf_counter() - began < seconds:
        made += 1
        drawn = draw(rng, kind, names)
        if drawn.reality.run(drawn.wanted)[0]:
            continue  # nothing to mend
        drawn.reality.launches = 0
        failed += 1
        at = time.process_time()
        if user == "patient":
            plan, wrong = drawn.reality.walk(start(drawn.world, drawn.wanted)), []
        else:
            plan, wrong = walk_restless(drawn, rng)
        slowest = max(slowest, (time.process_time() - at, drawn.label))
        end = plan.verdict.outcome if plan.verdict else "none"
        if user == "patient" and end != "verified":
            end += ", though something fits" if fits_somehow(drawn) is not None else ", as nothing fits"
        ends[end] += 1
        launches[len(plan.attempts)] += 1
        cause = plan.verdict.root_cause if plan.verdict else None
        causes[cause.variable if cause else "none"] += 1
        broken = [*wrong, *broken_rules(drawn, plan)]
        if kind == "honest" and "though" in end:
            broken.append("missed a fit")
        for rule in broken:
            rules[rule] += 1
        if verbose and (broken or "though" in end):
            sys.stdout.write(f"  {broken or end}: {drawn.label}\n")
    mean = sum(n * count for n, count in launches.items()) / max(1, failed)
    took = time.perf_counter() - began
    sys.stdout.write(
        f"{kind}, {user} user: {failed} walks of commands that fail ({made} drawn) in {took:.0f} s, "
        f"slowest {slowest[0]:.1f} s of computing: {slowest[1]}\n"
        f"  ends      {dict(ends.most_common())}\n"
        f"  launches  mean {mean:.2f}, {dict(sorted(launches.items()))}\n"
        f"  causes    {dict(causes.most_common())}\n"
        f"  broken    {dict(rules.most_common()) or 'none'}\n"
    )
    sys.stdout.flush()
    return sum(rules.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walks", type=int, default=500, help="of commands that fail, per kind of world and user")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--world", choices=WORLDS, action="append")
    parser.add_argument("--user", choices=USERS, action="append")
    parser.add_argument("--model", action="append", help="only these shapes")
    parser.add_argument("--without", action="append", default=[], metavar="SHAPE", help="leave these shapes out")
    parser.add_argument("--seconds", type=float, default=600.0, help="at most, per kind of world and user")
    parser.add_argument("--verbose", action="store_true", help="name each walk that broke a rule or missed a fit")
    args = parser.parse_args()
    names = tuple(name for name in args.model or sorted(zoo.shapes()) if name not in args.without)
    broken = 0
    for kind, user in product(args.world or WORLDS, args.user or USERS):
        broken += walk_all(kind, user, args.walks, args.seed, names, args.seconds, args.verbose)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
