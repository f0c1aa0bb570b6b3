"""Requests to the server under test: loopback only, no proxy, every one with a time limit."""

import http.client
import json
from dataclasses import dataclass
from typing import Any

from kvstudio.launch.process_command import LOOPBACK

#: An answer larger than this is not read to its end.
MAX_ANSWER_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. `status` None: nothing did, and `error` says why; `timed_out` then tells a slow server apart."""

    status: int | None
    body: Any
    error: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.status == 200 and not self.error

    @property
    def says(self) -> str:
        """The server's own words about an error, or ours."""
        if self.error:
            return self.error
        error = self.body.get("error") if isinstance(self.body, dict) else None
        text = error.get("message") if isinstance(error, dict) else None
        return f"HTTP {self.status}" + (f": {text}" if text else "")


class Client:
    """Talks to 127.0.0.1:`port`."""

    def __init__(self, port: int, api_key: str | None = None) -> None:
        self._port = port
        self._headers = {"Content-Type": "application/json"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key.split(',')[0]}"

    def get(self, path: str, timeout_s: float) -> Answer:
        return self._ask("GET", path, None, timeout_s)

    def post(self, path: str, value: Any, timeout_s: float) -> Answer:
        return self._ask("POST", path, json.dumps(value).encode(), timeout_s)

    def _ask(self, method: str, path: str, data: bytes | None, timeout_s: float) -> Answer:
        # http.client, unlike urllib, knows no proxies and follows nothing.
        connection = http.client.HTTPConnection(LOOPBACK, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, data, self._headers)
            response = connection.getresponse()
            return _answer(response.status, response.read(MAX_ANSWER_BYTES))
        except TimeoutError:
            return Answer(None, None, f"no answer within {timeout_s:g} s", True)
        except (OSError, http.client.HTTPException) as error:
            return Answer(None, None, f"the connection broke: {error or type(error).__name__}")
        finally:
            connection.close()


def _answer(status: int, data: bytes) -> Answer:
    try:
        return Answer(status, json.loads(data))
    except (ValueError, RecursionError):
        return Answer(status, None, "" if status != 200 else "the answer is not JSON")
