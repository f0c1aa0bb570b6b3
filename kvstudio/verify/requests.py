"""The conversation with a server that came up: one prompt, the same again, several at once, one filling the context."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kvstudio.runlog.values import Phase
from kvstudio.verify.client import Answer, Client
from kvstudio.verify.options import LaunchOptions

#: Between two looks whether the server is ready.
POLL_S = 0.1
HEALTH_TIMEOUT_S = 5.0
_NOT_SUPPORTED = (400, 404, 501)
#: What a server says, as an error of its own, when its model cannot generate.
_NO_LOGITS = "does not support logits"
#: What a server says when its model wrote bytes that are no text, as untrained or badly quantized ones do.
_NO_TEXT = "model produced output that does not match"
#: Then it is asked for letters only: what is tested is memory, not what the model has learned.
LETTERS = "root ::= [ -~]*"


@dataclass(frozen=True, slots=True)
class Reply:
    """One request as it went. `tokens`: predicted ones, or values of an embedding; `prompt_tokens` evaluated ones."""

    ok: bool
    endpoint: str
    seconds: float
    says: str
    tokens: int = 0
    prompt_tokens: int = 0
    text: str = ""
    timed_out: bool = False


@dataclass(slots=True)
class Talk:
    """Everything that was asked and answered; filled by the requests thread, read once that ended."""

    listening: bool = False
    build_info: str | None = None
    n_slots: int | None = None
    n_ctx_slot: int | None = None
    first: Reply | None = None
    again: list[Reply] = field(default_factory=list)
    together: list[Reply] = field(default_factory=list)
    filled: Reply | None = None
    done: bool = False

    @property
    def replies(self) -> tuple[Reply, ...]:
        first = (self.first,) if self.first else ()
        filled = (self.filled,) if self.filled else ()
        return (*first, *self.again, *self.together, *filled)

    @property
    def timed_out(self) -> bool:
        return any(reply.timed_out for reply in self.replies)


class Conversation:
    """Asks in its own thread; `stop` ends it at the next step."""

    def __init__(
        self,
        client: Client,
        options: LaunchOptions,
        *,
        endpoint: str,
        on_phase: Callable[[Phase, bool], None],
        stop: threading.Event,
    ) -> None:
        self.talk = Talk()
        self._client = client
        self._options = options
        self._endpoint = endpoint
        self._on_phase = on_phase
        self._stop = stop
        self._letters_only = False
        self._timeout_s = options.phase_timeout_s or 24 * 3600.0

    def run(self) -> None:
        """The whole conversation, until something fails."""
        if self._wait_ready():
            self._ask_server()
            self._talk()
        self.talk.done = True

    def _wait_ready(self) -> bool:
        while not self._stop.wait(POLL_S):
            answer = self._client.get("/health", HEALTH_TIMEOUT_S)
            # 404: a server that is up but too old to have /health.
            if answer.ok or answer.status == 404:
                self.talk.listening = True
                self._on_phase(Phase.LISTENING, True)
                return True
        return False

    def _ask_server(self) -> None:
        props = self._client.get("/props", HEALTH_TIMEOUT_S).body
        if not isinstance(props, dict):
            return
        build, slots = props.get("build_info"), props.get("total_slots")
        self.talk.build_info = build if isinstance(build, str) else None
        self.talk.n_slots = slots if isinstance(slots, int) else None
        settings = props.get("default_generation_settings")
        n_ctx = settings.get("n_ctx") if isinstance(settings, dict) else None
        self.talk.n_ctx_slot = n_ctx if isinstance(n_ctx, int) else None

    def _talk(self) -> None:
        talk, options = self.talk, self._options
        self._on_phase(Phase.GENERATE, False)
        talk.first = self._first()
        if not talk.first.ok:
            return
        self._on_phase(Phase.GENERATE, True)
        self._on_phase(Phase.REPEAT, False)
        for _ in range(options.repeat):
            if self._stop.is_set():
                return
            talk.again.append(self._ask(options.prompt))
            if not talk.again[-1].ok:
                return
        wanted = options.concurrent if options.concurrent is not None else (talk.n_slots or 1)
        if wanted > 1 and not self._stop.is_set():
            talk.together.extend(self._ask_together(wanted))
        if options.fill_context > 0 and not self._stop.is_set():
            talk.filled = self._fill(options.fill_context)
        if all(reply.ok for reply in talk.replies):
            self._on_phase(Phase.REPEAT, True)

    def _first(self) -> Reply:
        """The first prompt; a server made for embeddings or ranking refuses completions, so it is asked for those."""
        first, refused = self._ask(self._options.prompt), self._endpoint
        says = [first.says]
        for other in ("/completion", "/embedding", "/rerank"):
            if first.ok or not _refused(first.says) or self._stop.is_set():
                return first
            if other == refused:
                continue
            self._endpoint = other
            second = self._ask(self._options.prompt)
            if second.ok:
                return second
            says.append(f"{other}: {second.says}")
        self._endpoint = refused
        return replace(first, says="; ".join(says))

    def _ask(self, prompt: Any) -> Reply:
        reply = self._post(prompt)
        if reply.ok or self._letters_only or _NO_TEXT not in reply.says or self._stop.is_set():
            return reply
        self._letters_only = True
        return self._post(prompt)

    def _post(self, prompt: Any) -> Reply:
        began = time.monotonic()
        body = _body(self._endpoint, prompt, self._options)
        if self._letters_only and self._endpoint == "/completion":
            body["grammar"] = LETTERS
        answer = self._client.post(self._endpoint, body, self._timeout_s)
        reply = read_reply(self._endpoint, answer, time.monotonic() - began)
        if reply.ok and "grammar" in body:
            return replace(reply, says=f"{reply.says}, held to letters since the free answer was no text")
        return reply

    def _ask_together(self, n: int) -> list[Reply]:
        """`n` requests at once; threads, so that they are really in the server at the same time."""
        replies: list[Reply | None] = [None] * n

        def ask(i: int) -> None:
            replies[i] = self._ask(self._options.prompt)

        threads = [threading.Thread(target=ask, args=(i,), name="kvstudio-request", daemon=True) for i in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [reply for reply in replies if reply is not None]

    def _fill(self, share: float) -> Reply | None:
        """One prompt of `share` of a slot's context, made of the prompt's own tokens over and over."""
        n_ctx = self.talk.n_ctx_slot
        answer = self._client.post("/tokenize", {"content": self._options.prompt + "\n"}, HEALTH_TIMEOUT_S)
        tokens = answer.body.get("tokens") if isinstance(answer.body, dict) else None
        if not n_ctx or not tokens or self._endpoint != "/completion":
            return None
        wanted = max(1, int(n_ctx * min(share, 1.0)) - self._options.n_predict)
        return self._ask((tokens * (wanted // len(tokens) + 1))[:wanted])


def endpoint_for(embeddings: bool | None, reranking: bool | None, pooling: str | None) -> str:
    """Which endpoint the settings make the server serve."""
    if reranking or pooling == "rank":
        return "/rerank"
    return "/embedding" if embeddings else "/completion"


def read_reply(endpoint: str, answer: Answer, seconds: float) -> Reply:
    """Whether an answer holds what was asked for."""
    if not answer.ok:
        return Reply(False, endpoint, seconds, answer.says, timed_out=answer.timed_out)
    body = answer.body
    if endpoint == "/embedding":
        return _embedding_reply(endpoint, body, seconds)
    if endpoint == "/rerank":
        results = body.get("results") if isinstance(body, dict) else None
        n = len(results) if isinstance(results, list) else 0
        return Reply(n > 0, endpoint, seconds, f"{n} documents ranked", n)
    if not isinstance(body, dict):
        return Reply(False, endpoint, seconds, "the answer is not an object")
    tokens, prompt = _count(body.get("tokens_predicted")), _count(body.get("tokens_evaluated"))
    text = str(body.get("content", ""))
    says = f"{tokens} tokens generated after {prompt} of the prompt"
    return Reply(tokens > 0, endpoint, seconds, says, tokens, prompt, text)


def _embedding_reply(endpoint: str, body: Any, seconds: float) -> Reply:
    # Older servers answer with one object, newer ones with a list, the OpenAI form with `data`.
    entries = body.get("data", body) if isinstance(body, dict) else body
    entry = entries[0] if isinstance(entries, list) and entries else entries
    vector = entry.get("embedding") if isinstance(entry, dict) else None
    if isinstance(vector, list) and vector and isinstance(vector[0], list):
        vector = vector[0]
    n = len(vector) if isinstance(vector, list) else 0
    return Reply(n > 0, endpoint, seconds, f"an embedding of {n} values", n)


def _body(endpoint: str, prompt: Any, options: LaunchOptions) -> dict[str, Any]:
    if endpoint == "/rerank":
        return {"query": prompt, "documents": [prompt, "Something else."]}
    if endpoint == "/embedding":
        return {"content": prompt}
    # Without the cache each request really passes the prompt through; ignoring the end token makes the answer's
    # length the asked one, so that an answer without tokens is a failure and not a short model.
    return {
        "prompt": prompt,
        "n_predict": options.n_predict,
        "cache_prompt": False,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": False,
    }


def _refused(says: str) -> bool:
    """Whether the server refuses this kind of request, rather than failing at it."""
    return any(says.startswith(f"HTTP {status}") for status in _NOT_SUPPORTED) or _NO_LOGITS in says


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
