"""Texts -> what in them tells on a machine or its user, and the texts with tokens in its place."""

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kvstudio.report.values import Identity, Redaction


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: as it was, or the token that stands in for it. `start` is its offset in the original."""

    text: str
    token: str | None
    start: int


_SECRET_NAME = r"[\w-]*(?:(?:api|access|auth)[_-]?key|secret|passwd|password|(?:hf|auth|access)[_-]?token)"
_VALUE = r"(?:\"(?P<q>[^\"\r\n]+)\"|'(?P<s>[^'\r\n]+)'|(?P<v>[^\s\"',;|&}\])]+))"
#: Where a secret follows its name: flags, variables, JSON members, headers, address lines.
_KEY_PLACES = (
    ("value of --api-key", re.compile(r"--api-key(?:\s+|=)" + _VALUE.replace(",", ""))),
    ("value of -hft, --hf-token", re.compile(r"(?:-hft|--hf-token)(?:\s+|=)" + _VALUE)),
    ("bearer token", re.compile(r"(?i:bearer)\s+(?P<v>[A-Za-z0-9._~+/=-]{6,})")),
    ("secret, by its name", re.compile(r"(?<![\w-])(?i:" + _SECRET_NAME + r"|x-api-key)[\"']?\s*[=:]\s*" + _VALUE)),
    ("password in an address", re.compile(r"://[^\s/:@]{1,64}:(?P<v>[^\s/@]{1,128})@")),
    ("token in an address", re.compile(r"[?&](?:token|key|access_token|api_key|sig)=(?P<v>[^\s&\"']{6,})")),
)
#: Secrets that are known by their form.
_KEY_FORMS = (
    ("Hugging Face token", re.compile(r"(?<![A-Za-z0-9])(?P<v>hf_[A-Za-z0-9]{16,})")),
    ("API key", re.compile(r"(?<![A-Za-z0-9])(?P<v>sk-[A-Za-z0-9_-]{16,})")),
    ("GitHub token", re.compile(r"(?<![A-Za-z0-9])(?P<v>(?:gh[opusr]_|github_pat_|glpat-)[A-Za-z0-9_]{16,})")),
    ("cloud access key", re.compile(r"(?<![A-Za-z0-9])(?P<v>AKIA[0-9A-Z]{16})(?![0-9A-Z])")),
    ("web token", re.compile(r"(?<![A-Za-z0-9])(?P<v>eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*)")),
)
_PROMPT_FLAGS = re.compile(
    r"(?<![\w-])(?:-p|--prompt|-sys|--system-prompt)(?:\s+|=)"
    r"(?:\"(?P<q>[^\"\r\n]+)\"|'(?P<s>[^'\r\n]+)'|(?P<v>(?![\d:./]+(?:\s|$))[^\s'\"-]\S*))"
)
_PROMPT_LINES = re.compile(r"(?:^|\bmain: )prompt: ['\"](?P<v>.+?)['\"]\s*$")
_PROMPT_NAMES = r"(?:prompt|content|input|system_prompt|suffix|reasoning_content)"
_PROMPT_JSON = re.compile(r"(?<!\\)\"" + _PROMPT_NAMES + r"\"\s*:\s*\"(?P<v>(?:[^\"\\]|\\.)+)")
_PROMPT_QUOTED_JSON = re.compile(r"\\\"" + _PROMPT_NAMES + r"\\\"\s*:\s*\\\"(?P<v>.+?)(?<!\\)\\\"")

_HOME = re.compile(
    r"(?P<v>(?:/var)?/home/(?P<u1>[^/\s'\":,;|<>]+)|/Users/(?P<u2>[^/\s'\":,;|<>]+)|/root(?=/)|[A-Za-z]:(?:\\\\|\\|/)Users(?:\\\\|\\|/)(?P<u3>[^\\/\r\n'\":,;|<>]+))"
)
_JOURNAL_HOST = re.compile(r"^\S{3,12} +\d{1,2} \d\d:\d\d:\d\d (?P<v>[A-Za-z][\w.-]*) [^\s\[]+\[\d+\]: ")
_RPC_HOST = re.compile(r"(?:RPC\d*\[|--rpc[ =])(?P<v>[A-Za-z][\w.-]*[\w]):\d+")
_FLAG_HOST = re.compile(r"--host[ =](?P<v>[A-Za-z][\w-]*(?:\.[\w-]+)+|[A-Za-z][\w-]*)(?![\w./])")
_URL_HOST = re.compile(r"\bhttps?://(?:[^\s/@]*@)?(?P<v>[A-Za-z][\w.-]*?)(?=[:/\s'\"]|$)")
_MAIL = re.compile(
    r"(?<![\w.+:/-])(?P<v>[\w.+-]{1,64}@[A-Za-z][\w-]{0,63}(?:\.[\w-]{1,63}){0,3}\.[A-Za-z]{2,24})(?![\w@])"
)
_IPV4 = re.compile(r"(?<![\w.])(?P<v>(?:0|[1-9]\d{0,2})(?:\.(?:0|[1-9]\d{0,2})){3})(?![\w.]|-\d)(?! [DIWE] )")
_IPV6 = re.compile(r"(?<![\w:.])(?P<v>(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4})(?![\w:.])")
_GGUF = re.compile(r"(?P<v>[^\s/\\'\"=|]{1,255}\.gguf)")

_PUBLIC_HOSTS = (
    "localhost",
    "huggingface.co",
    "hf.co",
    "github.com",
    "raw.githubusercontent.com",
    "ollama.com",
    "modelscope.cn",
    "developer.nvidia.com",
    "docs.nvidia.com",
    "pytorch.org",
    "ggml.ai",
    "llama.com",
    "example.com",
)
_PUBLIC_SUFFIXES = tuple("." + host for host in _PUBLIC_HOSTS)
#: Names of accounts that tell on nobody, and words a log of llama.cpp is full of.
_COMMON_USERS = frozenset(
    (
        "root",
        "user",
        "users",
        "admin",
        "ubuntu",
        "debian",
        "ec2-user",
        "public",
        "default",
        "guest",
        "shared",
        "runner",
        "main",
        "server",
        "model",
        "models",
        "llama",
        "ollama",
        "test",
        "gpu",
        "cuda",
        "nobody",
        "linuxbrew",
        "ai",
        "data",
        "home",
        "cache",
        "build",
    )
)


def _one_of(*words: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(word) for word in words))


#: Words one of which a line must have before the patterns are tried on it: most lines of a long log have none.
_KEY_WORDS = re.compile(
    "-key|-hft|api_?key|access_?key|auth_?key|[Bb]earer|BEARER|secret|passw|(?:hf|auth|access)[_-]?token|[?&]token=|[?&]key=|"
    r"sig=|KEY|Key|SECRET|Secret|PASS|Pass|TOKEN|Token|://\S*@"
)
_FORM_WORDS = _one_of("hf_", "sk-", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "AKIA", "eyJ")
_PROMPTS = (_PROMPT_FLAGS, _PROMPT_LINES, _PROMPT_JSON, _PROMPT_QUOTED_JSON)
_PROMPT_WORDS = _one_of(
    "-p ", "-p=", "-prompt", "-sys", "prompt: ", '"prompt', '_prompt"', "content", "input", "suffix"
)
_HOME_WORDS = _one_of("/home/", "Users", "/root")
_HOSTS = (
    (_JOURNAL_HOST, "name of the machine, from the journal", _one_of("]: ")),
    (_RPC_HOST, "host of an RPC server", _one_of("RPC", "--rpc")),
    (_FLAG_HOST, "address given to --host", _one_of("--host")),
    (_URL_HOST, "host in an address line", _one_of("://")),
)
_SHORT = 6  # a secret shorter than this is hidden only where its flag stands, not wherever the letters occur
_ALWAYS_NUMBERED = ("IP", "KEY", "PROMPT")
_LIMIT = 1000  # different values of one kind


def find(texts: Iterable[str], identity: Identity | None = None, keys: Iterable[str] = ()) -> tuple[Redaction, ...]:
    """What to hide in `texts`, with how often each stands there; the order is that of the list shown.

    `keys`: secrets known from the settings. GGUF names are listed too, but shown unless asked otherwise.
    """
    finder = _Finder(identity or Identity(), tuple(k for k in keys if k))
    kept = tuple(texts)
    for text in kept:
        for line in text.split("\n"):
            finder.look(line)
    return _renumbered(count(finder.redactions(), kept))


def _renumbered(redactions: tuple[Redaction, ...]) -> tuple[Redaction, ...]:
    """Tokens counted again from 1, now that those that stand nowhere are gone."""
    seen: dict[str, int] = {}
    found = []
    for redaction in redactions:
        match = re.fullmatch(r"(.*?)(?: (\d+))?", redaction.token)
        name = match[1] if match else redaction.token
        seen[name] = seen.get(name, 0) + 1
        numbered = seen[name] > 1 or name in _ALWAYS_NUMBERED
        found.append(replace(redaction, token=f"{name} {seen[name]}" if numbered else name))
    return tuple(found)


def count(redactions: tuple[Redaction, ...], texts: Iterable[str]) -> tuple[Redaction, ...]:
    """The redactions with `places` filled in; those that stand nowhere are dropped."""
    places = dict.fromkeys((r.token for r in redactions), 0)
    everything = tuple(replace(r, hidden=True) for r in redactions if not r.token.startswith("GGUF"))
    names = tuple(replace(r, hidden=True) for r in redactions if r.token.startswith("GGUF"))
    for text in texts:
        for group in (everything, names):
            for span in apply(text, group):
                if span.token is not None:
                    places[span.token] += 1
    return tuple(replace(r, places=places[r.token]) for r in redactions if places[r.token])


def hide(redactions: tuple[Redaction, ...], selected: str, texts: Iterable[str]) -> tuple[Redaction, ...]:
    """The redactions with one more: a text somebody selected; unchanged when it is blank or already hidden."""
    value = selected.strip()
    if not value or any(value == r.value for r in redactions if r.hidden):
        return redactions
    known = [r for r in redactions if r.value == value]
    if known:
        return tuple(replace(r, hidden=True) if r.value == value else r for r in redactions)
    number = 1 + sum(r.token.startswith("HIDDEN ") for r in redactions)
    mine = Redaction(f"HIDDEN {number}", value, _literal(value), "selected by hand")
    return redactions + count((mine,), texts)


def apply(text: str, redactions: tuple[Redaction, ...]) -> tuple[Span, ...]:
    """The text as spans in order; where two redactions overlap, the one that begins first wins, then the longer."""
    hits = sorted(_hits(text, redactions), key=lambda h: (h[0], -h[1]))
    spans: list[Span] = []
    at = 0
    for start, end, token in hits:
        if start < at:
            if end > at:  # the rest of an overlapping secret goes with the one before
                last = spans[-1]
                spans[-1] = Span(text[last.start : end], last.token, last.start)
                at = end
            continue
        if start > at:
            spans.append(Span(text[at:start], None, at))
        spans.append(Span(text[start:end], token, start))
        at = end
    if at < len(text):
        spans.append(Span(text[at:], None, at))
    return tuple(spans)


def plain(text: str, redactions: tuple[Redaction, ...]) -> str:
    """The text with `[TOKEN]` where something is hidden."""
    if not redactions:
        return text
    return "".join(span.text if span.token is None else f"[{span.token}]" for span in apply(text, redactions))


def identity_from(environ: Mapping[str, str], node: str, home: str = "") -> Identity:
    """Who and where we are, read from an environment and a host name."""
    home = home or environ.get("HOME") or environ.get("USERPROFILE") or ""
    user = environ.get("USER") or environ.get("USERNAME") or environ.get("LOGNAME") or ""
    hosts = tuple(dict.fromkeys(h for h in (node, node.split(".")[0], environ.get("HOSTNAME", "")) if h))
    return Identity(home=home, user=user, hosts=hosts)


def _hits(text: str, redactions: tuple[Redaction, ...]) -> Iterator[tuple[int, int, str]]:
    for redaction in redactions:
        if redaction.hidden and _may_hit(text, redaction):
            for match in _compiled(redaction.pattern).finditer(text):
                start, end = match.span("v")
                if end > start:
                    yield start, end, redaction.token


def _may_hit(text: str, redaction: Redaction) -> bool:
    """A quick look before the regular expression: the value stands in the text, but for Windows paths."""
    return "\\" in redaction.value or redaction.value in text


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _literal(value: str) -> str:
    """The value wherever it stands."""
    return f"(?P<v>{re.escape(value)})"


def _word(value: str) -> str:
    """The value where it is not part of a longer word."""
    return rf"(?<![A-Za-z0-9_])(?P<v>{re.escape(value)})(?![A-Za-z0-9_])"


def _path(value: str) -> str:
    """A folder, with single or doubled backslashes (JSON), not as the beginning of a longer name."""
    escaped = re.escape(value.rstrip("/\\").replace("\\\\", "\\")).replace(r"\\", r"\\{1,2}")
    return rf"(?P<v>{escaped})(?![\w.-]*\w)" if escaped else r"(?!)(?P<v>)"


def _address(value: str) -> str:
    return rf"(?<![\w.:])(?P<v>{re.escape(value)})(?![\w]|\.\d)"


def _key(value: str) -> str:
    if len(value) >= _SHORT:
        return _literal(value)
    named = r"(?:--api-key|--hf-token|-hft|[\w-]*(?i:key|token|secret|password)[\"']?)"
    return rf"{named}[ =:]+[\"']?(?P<v>{re.escape(value)})(?![\w])"


class _Finder:
    """Collects values kind by kind while lines go by; a value has one token however often it stands there."""

    def __init__(self, identity: Identity, keys: tuple[str, ...]) -> None:
        self._homes: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._hosts: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._prompts: dict[str, str] = {}
        self._ggufs: dict[str, str] = {}
        self._user(identity.user, "user name")
        if len(identity.home) > 1:
            self._homes[identity.home.rstrip("/\\")] = "home folder, with the user name"
            self._user(re.split(r"[/\\]", identity.home.rstrip("/\\"))[-1], "user name, from the home folder")
        for name in identity.others:
            self._user(name, "user name, from the process list")
        for host in identity.hosts:
            self._host(host, "name of this machine")
        for key in keys:
            for single in key.split(","):
                self._put(self._keys, single.strip(), "value of --api-key")
        for prompt in identity.prompts:
            self._put(self._prompts, prompt.strip(), "prompt of the test launch")

    def look(self, line: str) -> None:
        if len(line) > 65536:
            for start in range(0, len(line), 65536):  # a line of 50 MB is looked at in pieces
                self.look(line[start : start + 65536])
            return
        self._look_for_keys(line)
        self._look_for_people(line)
        self._look_for_addresses(line)
        if ".gguf" in line:
            for match in _GGUF.finditer(line):
                self._put(self._ggufs, match["v"], "kept: upstream needs it")

    def redactions(self) -> tuple[Redaction, ...]:
        """Keys and prompts come first where texts overlap only by position; this order is the list's."""
        groups = (
            ("HOME", self._homes, _path, False),
            ("HOST", self._hosts, _word, False),
            ("IP", self._addresses, _address, True),
            ("KEY", self._keys, _key, True),
            ("USER", self._users, _word, False),
            ("PROMPT", self._prompts, _literal, True),
        )
        found = [
            Redaction(f"{name} {number}" if numbered or number > 1 else name, value, pattern(value), reason)
            for name, values, pattern, numbered in groups
            for number, (value, reason) in enumerate(values.items(), start=1)
        ]
        for number, (value, reason) in enumerate(self._ggufs.items(), start=1):
            token = "GGUF name" if number == 1 else f"GGUF name {number}"
            found.append(Redaction(token, value, _literal(value), reason, hidden=False))
        return tuple(found)

    def _look_for_keys(self, line: str) -> None:
        for patterns, words in ((_KEY_PLACES, _KEY_WORDS), (_KEY_FORMS, _FORM_WORDS)):
            if words.search(line) is None:
                continue
            for reason, pattern in patterns:
                for match in pattern.finditer(line):
                    value = _matched(match)
                    if value and not set(value) <= set("*•.x"):  # already masked by whoever printed it
                        for single in value.split(",") if "api-key" in reason else (value,):
                            self._put(self._keys, single, reason)
        for pattern in _PROMPTS if _PROMPT_WORDS.search(line) else ():
            for match in pattern.finditer(line):
                value = _matched(match)
                if value and len(value) > 1:
                    self._put(self._prompts, value, "text of a prompt")

    def _look_for_people(self, line: str) -> None:
        for match in _HOME.finditer(line) if _HOME_WORDS.search(line) else ():
            home = match["v"].replace("\\\\", "\\")
            user = match["u1"] or match["u2"] or match["u3"] or ""
            if user == "Shared" or (match["u1"] and user == "linuxbrew"):
                continue
            self._put(self._homes, home, "home folder, with the user name" if user else "home folder")
            self._user(user, "user name, from the home folder")
        if "@" in line:
            for match in _MAIL.finditer(line):
                self._put(self._users, match["v"], "mail address")

    def _look_for_addresses(self, line: str) -> None:
        for pattern, reason, words in _HOSTS:
            for match in pattern.finditer(line) if words.search(line) else ():
                self._host(match["v"], reason)
        flagged = set(re.findall(r"--host[ =](\S+)", line)) if "--host" in line else set()
        for pattern, dots in ((_IPV4, line.count(".") > 2), (_IPV6, line.count(":") > 1)):
            for match in pattern.finditer(line) if dots else ():
                if _tells(match["v"]):
                    reason = "address given to --host" if match["v"] in flagged else "network address"
                    self._put(self._addresses, match["v"], reason)

    def _user(self, name: str, reason: str) -> None:
        if len(name) >= 2 and name.lower() not in _COMMON_USERS:
            self._put(self._users, name, reason)

    def _host(self, name: str, reason: str) -> None:
        lowered = name.lower()
        public = lowered in _PUBLIC_HOSTS or lowered.endswith(_PUBLIC_SUFFIXES)
        if len(name) >= 2 and not public and lowered not in _COMMON_USERS:
            self._put(self._hosts, name, reason)

    @staticmethod
    def _put(values: dict[str, str], value: str, reason: str) -> None:
        if value and value not in values and len(values) < _LIMIT:
            values[value] = reason


def _matched(match: re.Match[str]) -> str | None:
    named = match.groupdict()
    return named.get("v") or named.get("q") or named.get("s")


@lru_cache(maxsize=4096)
def _tells(address: str) -> bool:
    """Whether an address says something about a network: not loopback, not "any", not a version number's accident."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_unspecified or parsed.is_multicast)
