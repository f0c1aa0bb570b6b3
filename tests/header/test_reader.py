"""header.reader: what it reads agrees with the gguf package, what it cannot read it says in one sentence."""

import os
import struct
import sys
import tracemalloc
from pathlib import Path

import pytest
from gguf import GGUFReader, GGUFValueType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstudio.errors import HeaderError
from kvstudio.header.parse import KEEP_NUMBERS
from kvstudio.header.reader import read
from kvstudio.header.source import CHUNK_BYTES
from kvstudio.header.values import ArrayValue, Header
from tests.header.files import gguf_bytes, pair, tensor, text, write_model


def read_bytes(folder: Path, raw: bytes, name: str = "model.gguf") -> Header:
    path = folder / name
    path.write_bytes(raw)
    return read(path)


def refuse(folder: Path, raw: bytes) -> HeaderError:
    with pytest.raises(HeaderError) as caught:
        read_bytes(folder, raw)
    error = caught.value
    assert str(folder / "model.gguf") in error.message
    assert "byte " in error.message
    assert error.message.endswith(".")
    assert error.hint
    return error


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_agrees_with_the_gguf_package(tmp_path: Path, alignment: int | None) -> None:
    path = write_model(tmp_path / "tiny.gguf", alignment=alignment)
    header, theirs = read(path), GGUFReader(path)
    fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert set(header.metadata) == set(fields)
    for name, field in fields.items():
        ours = header.metadata[name]
        if field.types[0] == GGUFValueType.ARRAY:
            assert isinstance(ours, ArrayValue)
            assert (ours.element_type, ours.count) == (field.types[1], len(field.data))
            if ours.values is not None:
                assert list(ours.values) == field.contents()
        else:
            assert ours == field.contents()
            assert type(ours) is type(field.contents())
    assert [(t.name, t.shape, t.type_id, t.n_bytes) for t in header.tensors] == [
        (t.name, tuple(t.shape.tolist()), t.tensor_type, t.n_bytes) for t in theirs.tensors
    ]
    data = header.shards[0].data_offset
    assert [data + t.offset for t in header.tensors] == [t.data_offset for t in theirs.tensors]
    assert header.shards[0].complete
    assert header.warnings == ()


def test_vocabulary_is_counted_but_not_kept(tmp_path: Path) -> None:
    header = read(write_model(tmp_path / "tiny.gguf", vocabulary=5000))
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores"):
        value = header.metadata[key]
        assert isinstance(value, ArrayValue)
        assert (value.count, value.values) == (5000, None)
    tags = header.metadata["general.tags"]
    assert isinstance(tags, ArrayValue)
    assert tags.values == ("small", "tést")


@given(lengths=st.lists(st.integers(0, 90) | st.sampled_from([255, 256, 300, 70_000]), min_size=60, max_size=900))
@settings(deadline=None, max_examples=60)
def test_strings_of_any_length_are_skipped_exactly(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("skip")
    words = b"".join(text(bytes([n % 256]) * n) for n in lengths)
    array = pair("words", 9, struct.pack("<IQ", 8, len(lengths)) + words)
    header = read_bytes(folder, gguf_bytes([array, pair("after", 4, struct.pack("<I", 77))]))
    assert header.metadata["after"] == 77


def test_chunk_borders_do_not_matter(tmp_path: Path) -> None:
    for shift in range(-9, 10):
        filler = pair("filler", 8, text(b"x" * (CHUNK_BYTES - 60 + shift)))
        header = read_bytes(tmp_path, gguf_bytes([filler, pair("n", 10, struct.pack("<Q", 2**63))], [tensor("a")]))
        assert header.metadata["n"] == 2**63
        assert header.tensors[0].name == "a"


@pytest.mark.parametrize("count", [KEEP_NUMBERS, KEEP_NUMBERS + 1])
def test_numbers_are_kept_up_to_a_bound(tmp_path: Path, count: int) -> None:
    numbers = pair("numbers", 9, struct.pack(f"<IQ{count}H", 2, count, *(n % 65536 for n in range(count))))
    value = read_bytes(tmp_path, gguf_bytes([numbers])).metadata["numbers"]
    assert isinstance(value, ArrayValue)
    assert value.values == (tuple(range(count)) if count == KEEP_NUMBERS else None)


def test_version_2_is_read(tmp_path: Path) -> None:
    header = read_bytes(tmp_path, gguf_bytes([pair("a", 8, text("b"))], version=2))
    assert (header.version, header.metadata["a"]) == (2, "b")


def test_text_that_is_not_utf8_is_still_text(tmp_path: Path) -> None:
    header = read_bytes(tmp_path, gguf_bytes([pair("a", 8, text(b"\xff\x00ok"))]))
    assert header.metadata["a"] == "\ufffd\x00ok"


def test_huge_text_is_cut_and_said(tmp_path: Path) -> None:
    header = read_bytes(tmp_path, gguf_bytes([pair("a", 8, text(b"x" * 1_500_000)), pair("b", 7, b"\1")]))
    assert len(str(header.metadata["a"])) == 1024**2
    assert header.metadata["b"] is True
    assert "1,500,000" in header.warnings[0]


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "an empty one"),
        (b"GG", "the bytes 47 47"),
        (b"\0" * 4096, "zeros"),
        (b"ggml" + b"\0" * 60, "before GGUF"),
        (b"PK\x03\x04" + b"\0" * 60, "zip"),
        (b"<!DOCTYPE html><html>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS"),
        (b"\x40\0\0\0\0\0\0\0" + b'{"__metadata__":{}}', "safetensors"),
        (b"GGUF\x03\0\0\0", "end of the file after 8"),
        (gguf_bytes(version=1), "found version 1"),
        (gguf_bytes(version=4), "found version 4"),
        (gguf_bytes(version=0), "found version 0"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian (version 3)"),
    ],
)
def test_not_a_gguf_of_today(tmp_path: Path, raw: bytes, says: str) -> None:
    assert says in refuse(tmp_path, raw).message


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (gguf_bytes(n_tensors=2**63), "the tensor count is"),
        (gguf_bytes(n_tensors=10), "where at most 0 are possible"),
        (gguf_bytes(n_pairs=2**64 - 1), "the metadata count is"),
        (gguf_bytes([struct.pack("<Q", 2**62) + b"aaaaaaaaaa"]), "metadata key 0 is"),
        (gguf_bytes([pair("", 4, b"\0\0\0\0")]), "is empty"),
        (gguf_bytes([pair("a", 8, struct.pack("<Q", 2**40))]), "'a' needs 1,099,511,627,776 bytes"),
        (gguf_bytes([pair("a", 9, struct.pack("<IQ", 8, 2**40))]), "1,099,511,627,776 elements"),
        (gguf_bytes([pair("a", 9, struct.pack("<IQ", 4, 3) + b"\0" * 11)]), "3 elements (12 bytes or more)"),
        (gguf_bytes([pair("a", 9, struct.pack("<IQ", 9, 1) + b"\0" * 20)]), "array of arrays"),
        (gguf_bytes([pair("a", 13, b"\0" * 8)]), "value type 13"),
        (gguf_bytes([pair("a", 9, struct.pack("<IQ", 77, 1) + b"\0" * 8)]), "value type 77"),
        (gguf_bytes([pair("a", 7, b"\0")] * 2), "'a' a second time"),
        (gguf_bytes([pair("general.alignment", 4, struct.pack("<I", 0))]), "general.alignment is 0"),
        (gguf_bytes([pair("general.alignment", 4, struct.pack("<I", 24))]), "general.alignment is 24"),
        (gguf_bytes([pair("general.alignment", 4, struct.pack("<I", 2**31))]), "power of two"),
        (gguf_bytes([pair("general.alignment", 8, text("32"))]), "general.alignment is '32'"),
        (gguf_bytes(tensors=[tensor("a"), tensor("a", offset=128)]), "'a' a second time"),
        (gguf_bytes(tensors=[tensor("x" * 64)]), "the name of tensor 0 is 64 bytes"),
        (gguf_bytes(tensors=[tensor("a", (1,) * 5)]), "5 dimensions"),
        (gguf_bytes(tensors=[tensor("a", (2**40, 2**40))]), "impossible shape"),
        (gguf_bytes(tensors=[tensor("a", (2**63,))]), "impossible shape"),
        (gguf_bytes(tensors=[tensor("a", (33,), 2)]), "multiple of 32 for q4_0"),
        (gguf_bytes(tensors=[tensor("a", (32,), 99)]), "unknown type: number 99"),
        (gguf_bytes(tensors=[tensor("a", (32,), 31)]), "q4_0_4_4, which llama.cpp has removed"),
    ],
)
def test_hostile_headers_are_refused_with_the_place(tmp_path: Path, raw: bytes, says: str) -> None:
    assert says in refuse(tmp_path, raw).message


def test_offset_named_is_where_it_went_wrong(tmp_path: Path) -> None:
    good = pair("good", 4, struct.pack("<I", 1))
    error = refuse(tmp_path, gguf_bytes([good, pair("bad", 9, struct.pack("<IQ", 4, 999))]))
    assert f"at byte {24 + len(good) + 8 + 3 + 4 + 4}," in error.message


def test_folder_pipe_and_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeaderError, match="found a folder"):
        read(tmp_path)
    with pytest.raises(HeaderError, match="no such file"):
        read(tmp_path / "none.gguf")
    with pytest.raises(HeaderError, match="cannot be opened"):
        read("nul\0byte")
    with pytest.raises(HeaderError, match=r"cannot be opened|no such file"):
        read(tmp_path / ("x" * 5000))


@pytest.mark.skipif(sys.platform == "win32", reason="needs mkfifo")
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(HeaderError, match="device or pipe"):
        read(tmp_path / "pipe")


def test_no_permission_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes())

    def deny(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("kvstudio.header.source.io.FileIO", deny)
    with pytest.raises(HeaderError, match="not permitted"):
        read(path)


def test_incomplete_data_opens(tmp_path: Path) -> None:
    path = write_model(tmp_path / "tiny.gguf")
    whole = read(path)
    assert whole.size_bytes >= whole.need_bytes
    with path.open("r+b") as file:
        file.truncate(whole.need_bytes - 1)
    cut = read(path)
    assert not cut.shards[0].complete
    assert (cut.need_bytes, cut.size_bytes) == (whole.need_bytes, whole.need_bytes - 1)
    assert cut.tensors == whole.tensors


def test_every_cut_of_the_header_is_an_error_and_every_cut_of_the_data_is_not(tmp_path: Path) -> None:
    raw = write_model(tmp_path / "whole.gguf", vocabulary=3, layers=1).read_bytes()
    whole = read(tmp_path / "whole.gguf")
    table_end = raw.rindex(b"blk.0.attn_norm.weight") + 22 + 4 + 8 + 4 + 8
    for size in range(table_end):
        refuse(tmp_path, raw[:size])
    for size in range(table_end, len(raw), 7):
        assert read_bytes(tmp_path, raw[:size]).tensors == whole.tensors


def test_wrong_offsets_are_a_warning(tmp_path: Path) -> None:
    header = read_bytes(tmp_path, gguf_bytes(tensors=[tensor("a"), tensor("b", offset=4096)], data=8192))
    assert "tensor b starts at 4,096 of the data, expected 128" in header.warnings[0]


def test_sparse_zeros_end_at_once(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with path.open("wb") as file:
        file.write(gguf_bytes(n_pairs=60_000) + pair("w", 9, struct.pack("<IQ", 8, 2**30)))
        file.truncate(2**40)
    with pytest.raises(HeaderError, match="only 536,87"):
        read(path)


def test_memory_stays_small_with_a_large_vocabulary(tmp_path: Path) -> None:
    words = b"".join(text(b"w%d" % (n * 7919)) for n in range(262_144))
    scores = struct.pack("<IQ", 6, 262_144) + b"\0" * 4 * 262_144
    raw = gguf_bytes([pair("words", 9, struct.pack("<IQ", 8, 262_144) + words), pair("scores", 9, scores)])
    (tmp_path / "model.gguf").write_bytes(raw)
    tracemalloc.start()
    try:
        read(tmp_path / "model.gguf")
        assert tracemalloc.get_traced_memory()[1] < 4 * 1024**2
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_model(tmp_path_factory.mktemp("fuzz") / "tiny.gguf", vocabulary=20).read_bytes()[:4000]


@given(data=st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_raise_header_errors_only(tiny: bytes, tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(tiny[: data.draw(st.integers(0, len(tiny)))])
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        raw[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
    try:
        header = read_bytes(tmp_path, bytes(raw))
    except HeaderError as error:
        assert "byte " in error.message
        return
    assert all(t.n_bytes >= 0 for t in header.tensors)


@given(raw=st.binary(max_size=300))
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_bytes_after_a_true_start_raise_header_errors_only(tmp_path: Path, raw: bytes) -> None:
    try:
        read_bytes(tmp_path, b"GGUF\x03\0\0\0" + raw)
    except HeaderError as error:
        assert error.hint
