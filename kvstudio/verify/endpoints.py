"""What is sent to each endpoint of a server, and whether its answer holds what was asked for; values in, values out."""

import base64
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from kvstudio.verify.client import Answer
from kvstudio.verify.options import LaunchOptions

COMPLETION, CHAT, EMBEDDING, RERANK = "/completion", "/v1/chat/completions", "/embedding", "/rerank"
#: Those that generate, so that a grammar can hold them.
GENERATES = (COMPLETION, CHAT)
_NOT_SUPPORTED = (400, 404, 501)
#: What a server says, as an error of its own, when its model cannot generate.
_NO_LOGITS = "does not support logits"
#: What a server says of a prompt that has to pass in one batch and is longer than that.
_TOO_LARGE = re.compile(r"too large to process.*?batch size: (\d+)", re.DOTALL)
#: Side of the test picture in pixels; models scale a picture to their own size.
_SIDE = 64


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as it went. `tokens`: predicted ones, or values of an embedding; `prompt_tokens` evaluated ones.

    `broken`: the connection ended without an answer, as when the server dies.
    """

    ok: bool
    endpoint: str
    seconds: float
    says: str
    tokens: int = 0
    prompt_tokens: int = 0
    text: str = ""
    timed_out: bool = False
    broken: bool = False


def endpoint_for(embeddings: bool | None, reranking: bool | None, pooling: str | None) -> str:
    """Which endpoint the settings make the server serve."""
    if reranking or pooling == "rank":
        return RERANK
    return EMBEDDING if embeddings else COMPLETION


def body_for(endpoint: str, prompt: Any, options: LaunchOptions) -> dict[str, Any]:
    """The request of one prompt: text, or tokens where the endpoint takes them; a chat gets the test picture too."""
    if endpoint == RERANK:
        return {"query": options.prompt, "documents": [prompt, "Something else."]}
    if endpoint == EMBEDDING:
        return {"content": prompt}
    # Without the cache each request really passes the prompt through; ignoring the end token makes the answer's
    # length the asked one, so that an answer without tokens is a failure and not a short model.
    body = {
        "n_predict": options.n_predict,
        "cache_prompt": False,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": False,
    }
    if endpoint == CHAT:
        parts = [{"type": "image_url", "image_url": {"url": picture_url()}}, {"type": "text", "text": prompt}]
        return body | {"messages": [{"role": "user", "content": parts}]}
    return body | {"prompt": prompt}


def picture_url() -> str:
    """A small picture as a data URI: a PNG of two soft colour ramps, `_SIDE` pixels each way."""
    rows = b"".join(b"\0" + bytes(v for x in range(_SIDE) for v in (4 * x, 4 * y, 128)) for y in range(_SIDE))
    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


def read_reply(endpoint: str, answer: Answer, seconds: float) -> Reply:
    """Whether an answer holds what was asked for."""
    if not answer.ok:
        broken = answer.status is None and not answer.timed_out
        return Reply(False, endpoint, seconds, answer.says, timed_out=answer.timed_out, broken=broken)
    body = answer.body
    if endpoint == EMBEDDING:
        return _embedding_reply(body, seconds)
    if endpoint == RERANK:
        results = body.get("results") if isinstance(body, dict) else None
        n = len(results) if isinstance(results, list) else 0
        return Reply(n > 0, endpoint, seconds, f"{n} documents ranked", n)
    if not isinstance(body, dict):
        return Reply(False, endpoint, seconds, "the answer is not an object")
    tokens, prompt, text = _chat_figures(body) if endpoint == CHAT else _completion_figures(body)
    says = f"{prompt} prompt tokens, {tokens} generated{_rate(body.get('timings'))}"
    return Reply(tokens > 0, endpoint, seconds, says, tokens, prompt, text)


def is_refused(says: str) -> bool:
    """Whether the server refuses this kind of request, rather than failing at it."""
    return any(says.startswith(f"HTTP {status}") for status in _NOT_SUPPORTED) or _NO_LOGITS in says


def largest_batch(says: str) -> int | None:
    """Tokens the server takes at once, where it refuses a prompt for being longer; None for any other answer."""
    found = _TOO_LARGE.search(says)
    return int(found[1]) if found else None


def _completion_figures(body: dict[str, Any]) -> tuple[int, int, str]:
    return _count(body.get("tokens_predicted")), _count(body.get("tokens_evaluated")), str(body.get("content", ""))


def _chat_figures(body: dict[str, Any]) -> tuple[int, int, str]:
    usage, choices = body.get("usage"), body.get("choices")
    usage = usage if isinstance(usage, dict) else {}
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    # A model that thinks first may have no answer yet: what it thought was generated too.
    words = [message.get(name) for name in ("reasoning_content", "content")] if isinstance(message, dict) else []
    text = "".join(word for word in words if isinstance(word, str))
    return _count(usage.get("completion_tokens")), _count(usage.get("prompt_tokens")), text


def _rate(timings: Any) -> str:
    """How fast, by the server's own count; nothing for an answer too short to tell."""
    rate = timings.get("predicted_per_second") if isinstance(timings, dict) else None
    n = _count(timings.get("predicted_n")) if isinstance(timings, dict) else 0
    # One token takes no time to speak of: it comes with the prompt's last batch.
    return f" at {rate:.1f} tokens/s" if isinstance(rate, int | float) and n > 1 and rate > 0 else ""


def _embedding_reply(body: Any, seconds: float) -> Reply:
    # Older servers answer with one object, newer ones with a list, the OpenAI form with `data`.
    entries = body.get("data", body) if isinstance(body, dict) else body
    entry = entries[0] if isinstance(entries, list) and entries else entries
    vector = entry.get("embedding") if isinstance(entry, dict) else None
    if isinstance(vector, list) and vector and isinstance(vector[0], list):
        vector = vector[0]
    n = len(vector) if isinstance(vector, list) else 0
    return Reply(n > 0, EMBEDDING, seconds, f"an embedding of {n} values", n)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
