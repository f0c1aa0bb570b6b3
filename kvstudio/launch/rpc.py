"""RPC servers as typed: addresses checked, and who answers at them."""

import re
import socket

from kvstudio.errors import ConfigError

#: A server on the local network answers at once; one that does not would hold up every list of devices.
CONNECT_TIMEOUT_S = 2.0
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.%]+\]):(?P<port>\d{1,5})")
_HINT = "Write host:port, several with commas, like 192.168.1.20:50052."


def parse_servers(text: str) -> tuple[str, ...]:
    """`host:port` addresses apart by commas or blanks.

    Raises: ConfigError that names the part that is none.
    """
    words = [word for word in re.split(r"[,\s]+", text) if word]
    if not words:
        raise ConfigError("no RPC server was typed.", _HINT)
    for word in words:
        found = _SERVER.fullmatch(word)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ConfigError(f"{word} is not the address of an RPC server.", _HINT)
    return tuple(dict.fromkeys(words))


def unreachable(servers: tuple[str, ...], timeout_s: float = CONNECT_TIMEOUT_S) -> tuple[tuple[str, str], ...]:
    """(server, reason) for each at which nobody answers."""
    found = ((server, _why_not(server, timeout_s)) for server in servers)
    return tuple((server, reason) for server, reason in found if reason)


def _why_not(server: str, timeout_s: float) -> str:
    match = _SERVER.fullmatch(server)
    if match is None:
        return "not host:port"
    try:
        with socket.create_connection((match["host"].strip("[]"), int(match["port"])), timeout_s):
            return ""
    except TimeoutError:
        return "no answer"
    except (OSError, OverflowError, UnicodeError) as error:
        return (getattr(error, "strerror", None) or str(error)).lower()
