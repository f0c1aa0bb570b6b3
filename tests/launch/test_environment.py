"""launch.environment: what the child sees."""

import pytest

from kvstudio.launch.binary import Binary
from kvstudio.launch.environment import child_env, merge


def test_settings_and_binary_add_to_ours() -> None:
    env = merge({"PATH": "/bin", "LD_LIBRARY_PATH": "/mine"}, [("A", "1")], [("LD_LIBRARY_PATH", "/wheel")])
    assert env == {"PATH": "/bin", "LD_LIBRARY_PATH": "/wheel:/mine", "A": "1"}


def test_settings_win() -> None:
    assert merge({"A": "0"}, [("A", "1")], [("A", "2")]) == {"A": "1"}


def test_settings_of_the_shell_do_not_leak_in() -> None:
    assert merge({"LLAMA_ARG_CTX_SIZE": "1", "LLAMA_CACHE": "/c"}, [("LLAMA_ARG_BATCH", "2")]) == {
        "LLAMA_CACHE": "/c",
        "LLAMA_ARG_BATCH": "2",
    }


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"])
def test_a_bundle_restores_the_loader_path(name: str) -> None:
    bundle = {name: "/bundle", f"{name}_ORIG": "/users"}
    assert merge(bundle, (), frozen=True) == {name: "/users"}
    assert merge({name: "/bundle"}, (), frozen=True) == {}
    assert merge(bundle, (), frozen=False) == bundle
    assert merge(bundle, (), [(name, "/wheel")], frozen=True) == {name: "/wheel:/users"}


def test_child_env_starts_from_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSTUDIO_TEST", "x")
    binary = Binary("/b", "llama-server", "", None, None, None, (), frozenset(), env=(("B", "2"),))
    env = child_env((("C", "3"),), binary)
    assert (env["KVSTUDIO_TEST"], env["B"], env["C"]) == ("x", "2", "3")
    assert child_env((), None)["KVSTUDIO_TEST"] == "x"
