"""Seconds and memory for a log of a million lines, and lines a second of the streaming parser.

Run as `python -m benchmarks.log_speed`, for it shares its logs with the tests.
"""

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from kvstudio.diagnose.read import read_log
from kvstudio.runlog.lines import LineReader
from kvstudio.runlog.lookup import WORDS
from kvstudio.runlog.parse import LogParser
from tests.diagnose.samples import LOGS

SHAPES = (
    "{t} I slot update_slots: id  {a} | task {b} | prompt processing progress, n_tokens = {b}, progress = 0.{a}",
    "{t} I slot print_timing: id  {a} | task {b} | prompt eval time = {b}.79 ms / 11 tokens ( 31.98 ms per token)",
    "{t} I srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200",
    "{t} I slot launch_slot_: id  {a} | task {b} | processing task, is_child = 0",
)
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
PRINTABLE = "".join(map(chr, range(33, 127)))

Line = Callable[[random.Random, list[str], int], str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument(
        "--unique", action="store_true", help="no line is like another: six kinds of other programs' text"
    )
    parser.add_argument("--own-words", action="store_true", help="no line is like another, and each holds a known word")
    parser.add_argument("--one-line", type=int, metavar="MB", help="all is one line of this size")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.log"
        if options.one_line:
            write_line(path, options.one_line * 1_000_000)
        else:
            write(path, options.lines, other if options.unique else own if options.own_words else shaped)
        size = path.stat().st_size
        start, start_cpu = time.perf_counter(), time.process_time()
        read = read_log(path)
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{read.n_lines:,} lines, {size / 1e6:.0f} MB: {seconds:.2f} s ({cpu_s:.2f} s busy), peak {peak:.0f} MB")
        print("  (reach: 3 s on a quiet machine for a million lines, 150 MB)")
        print(f"  {read.diagnosis.summary}")
        stream(path)


def write(path: Path, n_lines: int, line: Line) -> None:
    """A server that loads, answers for long, and then fails."""
    rng = random.Random(1)
    failure = (LOGS / "vulkan-compute-2sizes.log").read_text()
    words = vocabulary(rng)
    with path.open("w") as file:
        file.write((LOGS / "live-healthy.log").read_text())
        for n in range(n_lines - 240):
            file.write(line(rng, words, n) + "\n")
        file.write(failure)


def write_line(path: Path, n_bytes: int) -> None:
    """Text of English letters in one line, and a failure at its end."""
    rng = random.Random(1)
    words = vocabulary(rng, LETTERS[:14])
    failure = (LOGS / "vulkan-compute-2sizes.log").read_text()
    with path.open("w") as file:
        while file.tell() < n_bytes:
            file.write(" ".join(rng.choices(words, k=1000)) + " ")
        file.write(failure.replace("\n", "\\n"))


def vocabulary(rng: random.Random, letters: str = LETTERS) -> list[str]:
    return ["".join(rng.choices(letters, k=rng.randint(2, 10))) for _ in range(20_000)]


def shaped(rng: random.Random, words: list[str], n: int) -> str:
    """A line of a server at work: one of a few, but for its numbers."""
    stamp = f"{n // 60000}.{n // 1000 % 60:02}.{n % 1000:03}.007"
    return rng.choice(SHAPES).format(t=stamp, a=n % 4, b=n)


def own(rng: random.Random, words: list[str], n: int) -> str:
    """Other text around one of the words that make a line worth a closer look."""
    before, after = rng.choices(words, k=4), rng.choices(words, k=4)
    return " ".join((*before, rng.choice(WORDS), *after))


def other(rng: random.Random, words: list[str], n: int) -> str:
    """A line of an access log, a journal, a JSON log, generated text, a hex dump or a coded file."""
    a, b, c, *more = rng.choices(words, k=14)
    number = f"{rng.getrandbits(64):016x}"
    if n % 6 == 0:
        return (
            f'192.0.2.{n % 256} - - [30/Nov/2026:12:00:{n % 60:02} +0000] "GET /{a}/{b}?id={number} HTTP/1.1" 200 {n}'
        )
    if n % 6 == 1:
        host = f"host-{a}{number[:4]}"
        return f"Jan {n % 28 + 1} 17:50:{n % 60:02} {host} {b}[{n}]: session {number} opened for {c} by {more[0]}"
    if n % 6 == 2:
        return json.dumps({"ts": n, "msg": " ".join(more[:6]), "id": number, "user": a})
    if n % 6 == 3:
        return f"{' '.join(more)}, {a}. {b} {c}"
    if n % 6 == 4:
        pairs = " ".join(f"{rng.getrandbits(16):04x}" for _ in range(16))
        return f"{n:08x}: {pairs}  {''.join(rng.choices(PRINTABLE, k=16))}"
    return "".join(rng.choices(PRINTABLE, k=100))


def stream(path: Path, chunk: int = 65536) -> None:
    reader, parser = LineReader(), LogParser()
    start = time.process_time()  # one thread: its own seconds, whatever else the machine does
    with path.open("rb") as file:
        while data := file.read(chunk):
            parser.feed(reader.feed(data))
    seconds = time.process_time() - start
    print(f"streaming: {reader.n_lines / seconds:,.0f} lines/s (reach: 60,000)")


if __name__ == "__main__":
    main()
