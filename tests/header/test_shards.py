"""header.shards: any file opens the model; what is missing, mixed or renamed is named."""

import os
from pathlib import Path

import pytest

from kvstudio.errors import HeaderError
from kvstudio.header.reader import read
from tests.header.files import write_split

PARTS = (("a", "b"), ("c",), ("d", "e"))


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_any_shard_opens_the_model(tmp_path: Path, opened: int) -> None:
    paths = write_split(tmp_path, PARTS)
    header = read(paths[opened])
    assert header.path == str(paths[0])
    assert header.metadata["general.architecture"] == "llama"
    assert [shard.path for shard in header.shards] == [str(path) for path in paths]
    assert [(t.name, t.shard) for t in header.tensors] == [("a", 0), ("b", 0), ("c", 1), ("d", 2), ("e", 2)]
    assert header.size_bytes == sum(path.stat().st_size for path in paths)
    assert (header.missing_shards, header.warnings) == ((), ())


def test_missing_shards_are_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    paths[1].unlink()
    for opened in (paths[0], paths[2]):
        header = read(opened)
        assert header.missing_shards == (str(paths[1]),)
        assert [(t.name, header.shards[t.shard].path) for t in header.tensors][-1] == ("e", str(paths[2]))


def test_without_the_first_shard_there_is_no_model(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    paths[0].unlink()
    with pytest.raises(HeaderError, match="expected the first one") as caught:
        read(paths[1])
    assert str(paths[0]) in caught.value.message


def test_renamed_shard_is_found_and_named(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    renamed = paths[1].rename(tmp_path / "second half.gguf")
    header = read(paths[0])
    assert len(header.shards) == 3
    assert header.missing_shards == ()
    assert str(renamed) in header.warnings[0]
    assert paths[1].name in header.warnings[0]


def test_opened_shard_may_be_the_renamed_one(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    renamed = [path.rename(tmp_path / name) for path, name in zip(paths, ("one.gguf", "two.gguf", "three.gguf"))]
    header = read(renamed[2])
    assert [shard.path for shard in header.shards] == [str(path) for path in renamed]
    assert header.missing_shards == ()
    assert len(header.warnings) == 3


def test_blobs_without_extension_are_found_together(tmp_path: Path) -> None:
    """A Hugging Face cache keeps files under their hash; a file dialog may follow the link there."""
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for index, path in enumerate(write_split(tmp_path, PARTS)):
        path.rename(blobs / (f"{index}f" * 10))
        path.symlink_to(blobs / (f"{index}f" * 10))
    assert len(read(tmp_path / "model-00002-of-00003.gguf").shards) == 3
    assert read(tmp_path / "model-00002-of-00003.gguf").warnings == ()
    assert len(read(blobs / ("0f" * 10)).shards) == 3


def test_shard_under_a_wrong_number_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    other = tmp_path / "other"
    os.replace(paths[1], other)
    os.replace(paths[2], paths[1])
    os.replace(other, paths[2])
    with pytest.raises(HeaderError, match="expected file 2 of 3, found number 3 of 3 inside") as caught:
        read(paths[0])
    assert str(paths[1]) in caught.value.message


def test_shard_of_another_model_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    (tmp_path / "other").mkdir()
    other = write_split(tmp_path / "other", (("x",), ("y", "z"), ("w",)))
    os.replace(other[1], paths[1])
    with pytest.raises(HeaderError, match="found one of another"):
        read(paths[0])


def test_same_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    (tmp_path / "other").mkdir()
    other = write_split(tmp_path / "other", (("c",), ("a",), ("d", "e", "f")))
    os.replace(other[1], paths[1])
    with pytest.raises(HeaderError, match="'a' is also in"):
        read(paths[0])


def test_too_few_tensors_are_refused(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS, total=7)
    with pytest.raises(HeaderError, match=r"split\.tensors\.count is 7, found 5 tensors"):
        read(paths[0])


def test_a_damaged_second_shard_names_itself(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS)
    paths[2].write_bytes(b"")
    with pytest.raises(HeaderError, match="empty") as caught:
        read(paths[0])
    assert str(paths[2]) in caught.value.message


def test_shards_of_another_model_in_the_folder_do_not_fill_a_gap(tmp_path: Path) -> None:
    paths = write_split(tmp_path, PARTS, prefix="model-Q4")
    write_split(tmp_path, PARTS, prefix="model-Q8")
    paths[1].unlink()
    assert read(paths[0]).missing_shards == (str(paths[1]),)


def test_relative_paths_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_split(tmp_path, PARTS)
    monkeypatch.chdir(tmp_path)
    assert len(read("model-00003-of-00003.gguf").shards) == 3
