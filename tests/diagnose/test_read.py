"""diagnose.read: large logs are read in bounded memory, with the same answer as small ones."""

import time
import tracemalloc
from pathlib import Path

import pytest

from kvstudio.diagnose.read import AROUND, HEAD, MAX_KEPT, SMALL, TAIL, read_log
from kvstudio.diagnose.values import Outcome

DULL = "0.12.345.{n:03d} I slot update_slots: id  {n} | task {n} | n_tokens = {n}, progress = 0.{n}\n"
FAILURE = (
    "ggml_vulkan: Device memory allocation of size 1140850688 failed.\n"
    "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n"
    "12.47.431.169 E ggml_gallocr_reserve_n_impl: failed to allocate Vulkan0 buffer of size 1962934272\n"
    "12.47.431.174 E graph_reserve: failed to allocate compute buffers\n"
    "12.47.431.180 E llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers\n"
)


def dull(n_bytes: int) -> str:
    block = "".join(DULL.format(n=n % 1000) for n in range(2000))
    return block * (n_bytes // len(block) + 1)


@pytest.fixture(scope="module")
def filler() -> str:
    return dull(SMALL)


@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_a_large_log_gives_the_same_answer(filler: str, place: str) -> None:
    text = {"start": FAILURE + filler, "middle": filler + FAILURE + filler, "end": filler + FAILURE}[place]
    read = read_log(text.encode())
    found = read.diagnosis
    assert read.cut
    assert read.n_lines == text.count("\n")
    assert (found.stage, found.device, found.requested_bytes) == ("compute", "Vulkan0", 1962934272)
    assert found.key_line is not None
    assert text.split("\n")[found.key_line.number - 1] == found.key_line.text


def test_head_tail_and_surroundings_are_kept(filler: str) -> None:
    read = read_log((filler + FAILURE + filler).encode())
    numbers = {line.number for line in read.lines}
    key = read.diagnosis.key_line
    assert key is not None
    assert numbers >= set(range(1, HEAD))
    assert numbers >= set(range(read.n_lines - TAIL + 1, read.n_lines + 1))
    assert numbers >= set(range(key.number - AROUND, key.number + AROUND))
    assert len(numbers) == len(read.lines) <= HEAD + TAIL + 2 * AROUND + 100
    texts = (filler + FAILURE + filler).split("\n")
    assert all(line.text == texts[line.number - 1] for line in read.lines)


def test_path_and_bytes_are_read_alike(filler: str, tmp_path: Path) -> None:
    data = (filler + FAILURE).encode()
    path = tmp_path / "a.log"
    path.write_bytes(data)
    assert read_log(path) == read_log(data)


def test_the_last_of_endless_repeats_is_seen(filler: str) -> None:
    """A restart loop: the last run has another size than the first hundreds."""
    start = "build: 6700 (3df2244d) with gcc for x86_64-linux-gnu\n"
    loop = "".join(start + FAILURE.replace("1962934272", str(2_000_000_000 + n)) for n in range(12_000))
    read = read_log(loop.encode())
    assert read.n_bytes > SMALL
    assert read.diagnosis.requested_bytes == 2_000_011_999
    assert len(read.lines) < MAX_KEPT


def test_one_line_of_many_megabytes_is_bounded() -> None:
    long = b"x" * (SMALL + 3_000_000)
    for data in (long + b"\n" + FAILURE.encode(), long + FAILURE.encode(), FAILURE.encode() + long):
        tracemalloc.start()
        read = read_log(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60_000_000
        assert read.diagnosis.device == "Vulkan0"
        assert sum(len(line.text) for line in read.lines) < 200_000


def test_a_failure_inside_an_endless_line_is_found() -> None:
    line = b"y" * 9_000_000 + b" ggml_vulkan: Device memory allocation of size 1140850688 failed. " + b"z" * 3_000_000
    assert read_log(line).diagnosis.requested_bytes == 1140850688


def test_the_end_of_an_endless_line_full_of_words_is_read() -> None:
    """A log as one JSON text: its first pieces and its last are read, however many are between."""
    line = b'the server failed to load model; "out of memory" \\n' * 150_000
    read = read_log(b'{"log":"' + line + FAILURE.replace("\n", "\\n").encode() + b'"}')
    assert read.n_bytes > SMALL
    assert read.diagnosis.requested_bytes == 1962934272


def test_unlike_lines_that_say_the_same_are_bounded() -> None:
    """Each names another file, so that no two are alike; the last counts, and not all are kept."""
    letters = ["".join(chr(97 + n // 26**place % 26) for place in range(6)) for n in range(60_000)]
    lines = "".join(
        f"E gguf_init_from_file: failed to open GGUF file '/models/{name}.gguf' (gone)\n" for name in letters
    )
    read = read_log((lines + FAILURE).encode())
    assert read.n_bytes > SMALL
    assert read.diagnosis.device == "Vulkan0"
    assert len(read.events) < HEAD + 1000
    assert len(read.lines) < 2 * (HEAD + TAIL)
    read = read_log((dull(SMALL) + lines).encode())
    assert read.diagnosis.key_line is not None
    assert len(read.events) < 1000


@pytest.mark.parametrize(
    "unit", ["[", "(", "size = ", "failed to allocate ", "> ", "[1] ", '{"log":"', "buffer of size 1 ", " = "]
)
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    data = ((unit * (12_000 // len(unit)))[:12_000] + "\n").encode() * 200
    start = time.perf_counter()
    read_log(data)
    assert time.perf_counter() - start < 20


def test_a_large_wide_file_is_read(filler: str) -> None:
    read = read_log((filler[: SMALL // 2] + FAILURE).encode("utf-16"))
    assert read.diagnosis.outcome is Outcome.FAILED
    assert read.diagnosis.device == "Vulkan0"


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(OSError):
        read_log("/no/such/file.log")
