"""The conversation with a server that came up: one prompt, the same again, several at once, one filling the context."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from kvstudio.runlog.values import Phase
from kvstudio.verify.client import Client
from kvstudio.verify.endpoints import (
    CHAT,
    COMPLETION,
    EMBEDDING,
    GENERATES,
    RERANK,
    Reply,
    body_for,
    is_refused,
    largest_batch,
    read_reply,
)
from kvstudio.verify.options import LaunchOptions

#: Between two looks whether the server is ready.
POLL_S = 0.1
HEALTH_TIMEOUT_S = 5.0
#: What a server says when its model wrote bytes that are no text, as untrained or badly quantized ones do.
_NO_TEXT = "model produced output that does not match"
#: Then it is asked for letters only: what is tested is memory, not what the model has learned.
LETTERS = "root ::= [ -~]*"
#: Tokens that a ranking model may put around query and document.
_RANK_EXTRA = 16


@dataclass(slots=True)
class Talk:
    """Everything that was asked and answered; filled by the requests thread, read once that ended.

    `senses`: what the server takes besides text (`vision`, `audio`), None where it does not say. `looked`: the request
    with a picture. `left_out`: what was wanted and could not be asked, a sentence each.
    """

    listening: bool = False
    build_info: str | None = None
    n_slots: int | None = None
    n_ctx_slot: int | None = None
    senses: frozenset[str] | None = None
    first: Reply | None = None
    looked: Reply | None = None
    again: list[Reply] = field(default_factory=list)
    together: list[Reply] = field(default_factory=list)
    filled: Reply | None = None
    left_out: list[str] = field(default_factory=list)
    done: bool = False

    @property
    def groups(self) -> tuple[tuple[str, tuple[Reply, ...]], ...]:
        """Replies by what they were for, in the order they were asked."""
        first, looked, filled = ((reply,) if reply else () for reply in (self.first, self.looked, self.filled))
        again, together = tuple(self.again), tuple(self.together)
        groups = (("first", first), ("picture", looked), ("repeated", again), ("concurrent", together))
        return (*groups, ("fill", filled))

    @property
    def replies(self) -> tuple[Reply, ...]:
        return tuple(reply for _, replies in self.groups for reply in replies)

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
        projector: bool = False,
    ) -> None:
        self.talk = Talk()
        self._client = client
        self._options = options
        self._endpoint = endpoint
        self._on_phase = on_phase
        self._stop = stop
        self._projector = projector
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
        senses = props.get("modalities")
        if isinstance(senses, dict):
            self.talk.senses = frozenset(str(name) for name, there in senses.items() if there is True)

    def _talk(self) -> None:
        talk, options = self.talk, self._options
        self._on_phase(Phase.GENERATE, False)
        talk.first = self._first()
        if talk.first.ok:
            talk.looked = self._look()
        if not all(reply.ok for reply in talk.replies):
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
            talk.filled = self._fill(min(options.fill_context, 1.0))
        if all(reply.ok for reply in talk.replies):
            self._on_phase(Phase.REPEAT, True)

    def _first(self) -> Reply:
        """The first prompt; a server made for embeddings or ranking refuses completions, so it is asked for those."""
        first, refused = self._ask(self._options.prompt), self._endpoint
        says = [first.says]
        for other in (COMPLETION, EMBEDDING, RERANK):
            if first.ok or not is_refused(first.says) or self._stop.is_set():
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

    def _look(self) -> Reply | None:
        """A prompt with a picture, for a model with a projector for pictures; what cannot be tried is said."""
        if self._endpoint != COMPLETION or self._stop.is_set():
            return None
        senses = self.talk.senses
        if self._projector and senses is None:
            self.talk.left_out.append("no picture was sent: the server does not say whether it takes any")
        elif self._projector and senses is not None and "vision" not in senses:
            takes = " and ".join(sorted(senses)) or "text only"
            self.talk.left_out.append(f"no picture was sent: the server takes {takes}")
        elif senses is not None and "vision" in senses:
            return self._ask(self._options.prompt, CHAT)
        return None

    def _ask(self, prompt: Any, endpoint: str | None = None) -> Reply:
        reply = self._post(prompt, endpoint or self._endpoint)
        if reply.ok or self._letters_only or _NO_TEXT not in reply.says or self._stop.is_set():
            return reply
        self._letters_only = True
        return self._post(prompt, endpoint or self._endpoint)

    def _post(self, prompt: Any, endpoint: str) -> Reply:
        began = time.monotonic()
        body = body_for(endpoint, prompt, self._options)
        if self._letters_only and endpoint in GENERATES:
            body["grammar"] = LETTERS
        answer = self._client.post(endpoint, body, self._timeout_s)
        reply = read_reply(endpoint, answer, time.monotonic() - began)
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
        if not n_ctx or not isinstance(tokens, list) or not tokens:
            why = f"does not count tokens ({answer.says})" if n_ctx else "does not say how large a slot's context is"
            self.talk.left_out.append(f"the context was not filled: the server {why}")
            return None
        answered = self._options.n_predict if self._endpoint == COMPLETION else 0
        wanted = max(1, int(n_ctx * share) - answered)
        reply = self._ask(self._long_prompt(tokens, wanted))
        most = None if reply.ok else largest_batch(reply.says)
        if most is None or most >= wanted:
            return _filled(reply, wanted, n_ctx)
        # Not a failure of this launch: such a model takes a prompt in one batch, so that is all that can be filled.
        says = f"{most} tokens go through at once (-ub); {wanted} of a slot's context were wanted"
        self.talk.left_out.append(says)
        return _filled(self._ask(self._long_prompt(tokens, most)), most, n_ctx)

    def _long_prompt(self, tokens: list[Any], wanted: int) -> Any:
        """About `wanted` tokens: exactly as many, or for ranking, which takes text only, a text of not more."""
        if self._endpoint != RERANK:
            return (tokens * (wanted // len(tokens) + 1))[:wanted]
        # The query and the tokens between query and document count too, and a text may be cut otherwise when joined.
        times = (wanted - len(tokens) - _RANK_EXTRA) // (len(tokens) + 1)
        return (self._options.prompt + "\n") * max(1, times)


def _filled(reply: Reply, n_tokens: int, n_ctx: int) -> Reply:
    """The reply with how much was filled."""
    told = reply.prompt_tokens or f"about {n_tokens}"
    return replace(reply, says=f"{told} of a slot's {n_ctx} tokens: {reply.says}")
