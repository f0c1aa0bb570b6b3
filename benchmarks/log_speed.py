"""Seconds and memory for a log of a million lines, and lines a second of the streaming parser.

Run as `python -m benchmarks.log_speed`, for it shares its logs with the tests.
"""

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

from kvstudio.diagnose.read import read_log
from kvstudio.runlog.lines import LineReader
from kvstudio.runlog.parse import LogParser
from tests.diagnose.samples import LOGS

SHAPES = (
    "{t} I slot update_slots: id  {a} | task {b} | prompt processing progress, n_tokens = {b}, progress = 0.{a}",
    "{t} I slot print_timing: id  {a} | task {b} | prompt eval time = {b}.79 ms / 11 tokens ( 31.98 ms per token)",
    "{t} I srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200",
    "{t} I slot launch_slot_: id  {a} | task {b} | processing task, is_child = 0",
)
WORDS = (
    "the",
    "server",
    "said",
    "that",
    "its",
    "model",
    "answers",
    "with",
    "words",
    "nobody",
    "wrote",
    "before",
    "and",
    "waits",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--chatty", action="store_true", help="every line has words of its own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.log"
        write(path, options.lines, options.chatty)
        size = path.stat().st_size
        start = time.perf_counter()
        read = read_log(path)
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{read.n_lines:,} lines, {size / 1e6:.0f} MB: {seconds:.2f} s, peak {peak:.0f} MB (reach: 3 s, 150 MB)")
        print(f"  {read.diagnosis.summary}")
        stream(path)


def write(path: Path, n_lines: int, chatty: bool) -> None:
    """A server that loads, answers for long, and then fails."""
    rng = random.Random(1)
    failure = (LOGS / "vulkan-compute-2sizes.log").read_text()
    with path.open("w") as file:
        file.write((LOGS / "live-healthy.log").read_text())
        for n in range(n_lines - 240):
            stamp = f"{n // 60000}.{n // 1000 % 60:02}.{n % 1000:03}.007"
            line = rng.choice(SHAPES).format(t=stamp, a=n % 4, b=n)
            if chatty:
                line = f"{stamp} I " + " ".join(rng.choice(WORDS) for _ in range(16))
            file.write(line + "\n")
        file.write(failure)


def stream(path: Path, chunk: int = 65536) -> None:
    reader, parser = LineReader(), LogParser()
    start = time.process_time()  # one thread: its own seconds, whatever else the machine does
    with path.open("rb") as file:
        while data := file.read(chunk):
            parser.feed(reader.feed(data))
    seconds = time.process_time() - start
    print(f"streaming: {reader.n_lines / seconds:,.0f} lines/s (reach: 50,000)")


if __name__ == "__main__":
    main()
