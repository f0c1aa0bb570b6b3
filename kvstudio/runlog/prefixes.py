"""What wrappers put in front of a llama.cpp message, taken off layer by layer, with the level and time it carried."""

import json
import re

MAX_LAYERS = 6
_END = "*`\u2502\ufffd \t"

_ESCAPES = re.compile(
    r"(?:\x1b|\\x1b|\\033|#033|\\u001b|\^\[)\[[0-9;?]*[ -/]*[@-~]"  # colours and cursor moves, also as escaped text
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # terminal titles
    r"|\x1b[@-_]?"
    r"|\[(?:\d{1,3}(?:;\d{1,3})*)?m"  # a colour that lost its escape character
)
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_LEVELS = {
    "D": "D", "DEBUG": "D", "DBG": "D", "TRACE": "D", "TRC": "D", "VERB": "D",
    "I": "I", "INFO": "I", "INF": "I", "NOTICE": "I", "LOG": "I",
    "W": "W", "WARN": "W", "WARNING": "W", "WRN": "W",
    "E": "E", "ERROR": "E", "ERR": "E", "FATAL": "E", "CRIT": "E", "CRITICAL": "E", "PANIC": "E",
}  # fmt: skip
_WORDS = "|".join(sorted((w for w in _LEVELS if len(w) > 2), key=len, reverse=True))

#: Lines that start with a function of llama.cpp need no stripping; most lines of a log do.
_BARE = re.compile(
    r"(?:ggml|llama|llm|load|print|common|sched|graph|alloc|clip|srv|slot|init|create|set|main|build|system)[a-z_]*"
    r"(?: *[\w~]+)?:(?! *$)"
)

_STAMP = r"\d{1,5}\.\d{2}\.\d{3}\.\d{3}"
#: That, a level and nothing before them start every line of a plain llama-server: no other layer is looked for.
_PLAIN = re.compile(rf"({_STAMP}) ([DIWE]) +(?=\S)")
_DAY = r"\d{4}[-/.]\d{2}[-/.]\d{2}"
_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,:-]\d+)?"
_ZONE = r"(?:Z|[+-]\d{2}:?\d{2})?"

_LAYERS = re.compile(
    "|".join(
        (
            # llama.cpp since 2026: minutes.seconds.milli.micro and a level; a spinner may stand before it
            rf"[/\\|\-\u2800-\u28ff]?\s*(?P<stamp>{_STAMP}) (?:(?P<l1>[DIWE]) +(?=\S))?",
            r"(?P<l2>[DIWE])\s{1,2}(?=[a-z_~][\w~]*[ :(]|allocating|CUDA|ROCm|MUSA|\[)",
            # containers: compose, Kubernetes (CRI), docker logs -t, snap
            r"[\w.\-/]{1,60}\s+\|\s",
            rf"{_DAY}T{_CLOCK}{_ZONE} (?:stdout|stderr) [FP] ",
            rf"{_DAY}T{_CLOCK}{_ZONE}\s+[\w.\-]+(?: [\w.\-]+)?\[\d+\]: ",
            rf"{_DAY}T{_CLOCK}{_ZONE} \[[A-Z]+\]::(?:\w+:)? ?",  # Jan's Cortex
            # journald and syslog in any language; the host may be missing, the unit carries its pid
            rf"[^\s\d:=]{{1,12}}\.? +\d{{1,2}} {_CLOCK}(?: [^\s\[\]:]+)? [\w.@\-]+(?:\[\d+\])?: ?",
            rf"\d{{1,2}}\S{{0,3}} +\d{{1,2}} {_CLOCK}(?: [^\s\[\]:]+)? [\w.@\-]+(?:\[\d+\])?: ?",
            rf"\d{{1,2}}[ .][^\s\d:=]{{2,12}}\.? {_CLOCK}(?: [^\s\[\]:]+)? [\w.@\-]+\[\d+\]: ?",
            # LocalAI
            r"\d{1,2}:\d{2}[AP]M (?P<l3>[A-Z]{3}) (?:GRPC\([^)]*\): )?(?:std(?:err|out) )?",
            # dates and clocks in brackets or bare, with or without a level word
            rf"\[?{_DAY}[ T]{_CLOCK}{_ZONE}\]?,? ?",
            rf"\[?{_CLOCK}\]? (?=\S)",
            rf"\[\s*(?P<l4>(?i:{_WORDS}))\s*\]\s?(?:\[[\w .:\-]+\]\s?)?",
            rf"(?P<l5>{_WORDS})\s*(?::|\||-)\s+(?=\S)",
            r"\[(?:WASI-NN|llama\.cpp|LM STUDIO SERVER|lmstudio-llama-cpp|llama-server|std(?:err|out))\]:? ?",
            r"llama\.cpp: (?=\w)",
            r"(?:llama-server|llama_server|llamacpp|koboldcpp) ?(?:stderr|stdout)?: (?=\w+:)",
            r"std(?:err|out)(?: [FP])?[:|]? (?=\w+:|\S+ \w+:)",
            # line numbers of an editor or of grep -n
            r"\d{1,7}:\s*(?=[a-z~]+_[\w~]*: )",
            # router children and old epoch stamps; the first bracket may be lost
            r"\[?\d{2,10}\]\s+(?=\S)",
            r"\[\s*\d+\.\d{4,6}\] (?=\S)",  # kernel ring buffer
            # a terminal's or a page's own marks
            r"[\u2502\u2503\u2551>#*\u2022]+\s+",
            r"\*\*(?=\S)",
            r"`+(?=\S)",
            r"[\u2800-\u28ff]\s*(?:\w+\.\.\.)?\s{3,}",
            r"- (?=[a-z_]+:|\d)",
        )
    )
)


def clean(text: str) -> str:
    """The text without colour codes, cursor moves and control characters; tabs stay."""
    if "\x1b" in text or "[" in text or "\\" in text or "#" in text or "^" in text:
        text = _ESCAPES.sub("", text)
    if not text.isprintable():
        text = _CONTROL.sub("", text)
    return text


def strip(text: str) -> tuple[str, str | None, float | None]:
    """Message, level letter and seconds since start of one line; layers of wrapper prefixes are taken off in turn."""
    if _BARE.match(text):
        return text, None, None
    plain = _PLAIN.match(text)
    if plain is not None and _BARE.match(text, plain.end()):
        return text[plain.end() :].rstrip().rstrip(_END), plain[2], _seconds(plain[1])
    message = text.strip().replace("#011", "") if "#011" in text else text.strip()
    level: str | None = None
    time_s: float | None = None
    for _ in range(MAX_LAYERS):
        if message[:1] == "{" and message[-1:] == "}":
            unpacked = _unpack(message)
            if unpacked is None:
                break
            message, said, at = unpacked
            level, time_s = said or level, time_s if at is None else at
            continue
        if _BARE.match(message):
            break
        match = _LAYERS.match(message)
        if match is None or match.end() == 0:
            break
        stamp, l1, l2, l3, l4, l5 = match.group("stamp", "l1", "l2", "l3", "l4", "l5")
        word = l1 or l2 or l3 or l4 or l5
        if word:
            level = _LEVELS.get(word.upper(), level)
        if stamp:
            time_s = _seconds(stamp)
        message = message[match.end() :].lstrip()
    return message.rstrip(_END), level, time_s


def _seconds(stamp: str) -> float:
    minutes, seconds, micro = stamp.split(".", 2)
    return int(minutes) * 60 + int(seconds) + int(micro.replace(".", "")) / 1_000_000


def _unpack(text: str) -> tuple[str, str | None, float | None] | None:
    """The message inside a JSON line: llama.cpp's own, Docker's, journald's, or the 2024 server's."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or record.get("type") not in (None, "log"):
        return None
    level = _LEVELS.get(str(record.get("level", "")).upper())
    if record.get("type") == "log" and isinstance(record.get("msg"), str):
        at = record.get("time")
        return record["msg"].strip(), level, at / 1_000_000 if isinstance(at, int | float) else None
    for key in ("log", "MESSAGE", "message", "msg"):
        inner = record.get(key)
        if isinstance(inner, str):
            function, build = record.get("function"), record.get("build")
            said = f"{function}: {inner}" if isinstance(function, str) else inner
            if isinstance(build, int):
                said = f"build: {build} ({record.get('commit')})"
            return said.strip(), level, None
    return None
