"""launch.rpc: addresses of RPC servers, and who answers."""

import socket

import pytest

from kvstudio.errors import ConfigError
from kvstudio.launch.rpc import parse_servers, unreachable


def test_servers_are_apart_by_commas_or_blanks_and_counted_once() -> None:
    typed = "box:50052, 192.168.1.2:1 [::1]:50052,box:50052"
    assert parse_servers(typed) == ("box:50052", "192.168.1.2:1", "[::1]:50052")


@pytest.mark.parametrize("text", ["box", "box:", "box:0", "box:70000", ":50052", "http://box:50052", "a b:1", "b:x"])
def test_what_is_no_address_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="is not the address of an RPC server"):
        parse_servers(text)


def test_nothing_typed_is_said() -> None:
    with pytest.raises(ConfigError, match="no RPC server"):
        parse_servers(" , ")


def test_only_servers_that_do_not_answer_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{taken.getsockname()[1]}"
            ((named, reason),) = unreachable((here, nobody))
    assert named == nobody
    assert "refused" in reason
    assert unreachable(("nonsense",)) == (("nonsense", "not host:port"),)
