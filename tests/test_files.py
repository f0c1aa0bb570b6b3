"""Files are written whole or not at all, and only files are replaced."""

import os
from pathlib import Path

import pytest

from kvstudio import files
from kvstudio.files import write_whole


def test_a_link_is_followed_and_the_mode_kept(tmp_path: Path) -> None:
    real = tmp_path / "real.md"
    real.write_text("old")
    real.chmod(0o600)
    link = tmp_path / "link.md"
    link.symlink_to(real)
    write_whole(link, b"new")
    assert real.read_bytes() == b"new"
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, b"through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_name_as_long_as_names_get_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_whole(path, b"x")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_is_an_error_and_its_device_stays_a_device() -> None:
    with pytest.raises(OSError, match="No space left"):
        write_whole("/dev/full", b"x")
    assert not os.path.isfile("/dev/full")


def test_on_windows_a_file_that_is_open_elsewhere_for_a_moment_is_replaced(tmp_path, monkeypatch):
    refused, replace = [1, 1], os.replace

    def busy(source, target):
        if refused:
            refused.pop()
            raise PermissionError(13, "in use")
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", busy)
    with pytest.raises(PermissionError):
        files.write_whole(tmp_path / "a", b"1")
    monkeypatch.setattr(files, "_TRIES", 10)
    monkeypatch.setattr(files, "_BETWEEN_S", 0)
    files.write_whole(tmp_path / "a", b"2")
    assert (tmp_path / "a").read_bytes() == b"2"
    refused += [1] * 100
    with pytest.raises(PermissionError):
        files.write_whole(tmp_path / "a", b"3")
    assert (tmp_path / "a").read_bytes() == b"2"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
