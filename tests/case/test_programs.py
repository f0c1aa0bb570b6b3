"""Programs remembered between starts: asked once, asked again when anything of them is another."""

import json
import os
import threading
from pathlib import Path

import pytest

from kvstudio.case import programs
from kvstudio.errors import LaunchError
from tests.launch.programs import NEW_VERSION, write_llama, write_program


def asked(log):
    return log.read_text().split() if log.exists() else []


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def server(tmp_path, log):
    return write_llama(tmp_path / "bin" / "llama-server", log=str(log))


def test_a_program_is_asked_once_for_all_starts(tmp_path, server, log):
    first = programs.inspect(server, tmp_path / "kept")
    assert programs.inspect(server, tmp_path / "kept") == first
    assert asked(log) == ["--version", "--help"]


def test_another_file_behind_the_same_link_is_asked(tmp_path, server, log):
    link = tmp_path / "llama-server"
    link.symlink_to(server)
    old = programs.inspect(str(link), tmp_path / "kept")
    link.unlink()
    link.symlink_to(write_llama(tmp_path / "new" / "llama-server", version=NEW_VERSION))
    new = programs.inspect(str(link), tmp_path / "kept")
    assert (old.build, new.build) == (6345, 11434)


def test_a_new_library_beside_the_program_is_another_program(tmp_path, server, log):
    programs.inspect(server, tmp_path / "kept")
    library = tmp_path / "bin" / "libllama.so"
    library.touch()
    os.utime(library.parent, ns=(1, 1))
    programs.inspect(server, tmp_path / "kept")
    assert len(asked(log)) == 4


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"schema": "kvstudio.programs/1", "programs": 3}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path, server, log, damage):
    kept = tmp_path / "kept"
    first = programs.inspect(server, kept)
    (kept / programs.FILE).write_text(damage)
    assert programs.inspect(server, kept) == first
    assert len(asked(log)) == 4


def test_what_another_version_wrote_is_asked_again(tmp_path, server, log):
    kept = tmp_path / "kept"
    programs.inspect(server, kept)
    plain = json.loads((kept / programs.FILE).read_text())
    (kept / programs.FILE).write_text(json.dumps(plain | {"by": "0.0.0"}))
    programs.inspect(server, kept)
    assert len(asked(log)) == 4


def test_a_folder_that_cannot_be_written_keeps_nothing_and_stops_nothing(tmp_path, server):
    (tmp_path / "file").write_text("in the way")
    assert programs.inspect(server, tmp_path / "file" / "kept").build == 6345


def test_a_program_that_fails_is_not_kept(tmp_path):
    broken = write_program(tmp_path / "llama-server", "raise SystemExit(3)")
    for _ in range(2):
        with pytest.raises(LaunchError):
            programs.inspect(broken, tmp_path / "kept")
    assert not (tmp_path / "kept" / programs.FILE).exists()


def test_many_programs_asked_at_once_are_all_kept_and_those_that_are_gone_forgotten(tmp_path):
    paths = [write_llama(tmp_path / str(i) / "llama-server") for i in range(6)]
    threads = [threading.Thread(target=programs.inspect, args=(path, tmp_path / "kept")) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Path(paths[0]).unlink()
    last = write_llama(tmp_path / "last" / "llama-server")
    programs.inspect(last, tmp_path / "kept")
    plain = json.loads((tmp_path / "kept" / programs.FILE).read_text())
    assert set(plain["programs"]) == {*paths[1:], last}
