"""runlog.prefixes: what wrappers put in front comes off, layer by layer; the message stays whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.runlog.lines import make_line
from kvstudio.runlog.prefixes import clean, strip

MESSAGE = "llama_kv_cache: size = 2048.00 MiB"


@pytest.mark.parametrize(
    ("prefix", "level", "time_s"),
    [
        ("", None, None),
        ("3.02.199.202 E ", "E", 182.199202),
        ("/4.56.756.924 E ", "E", 296.756924),
        ("0.00.000.001 ", None, 0.000001),
        ("E ", "E", None),
        ("[34353] ", None, None),
        ("53193] ", None, None),
        ("Jan 26 17:50:35 host ollama[1418]: ", None, None),
        ("10月 19 22:21:15 gpu ollama[60399]: ", None, None),
        ("mar 15 11:39:07 box ollama[1]: ", None, None),
        ("jun 18 13:23:17 ollama[22256]: ", None, None),
        ("Aug 27 11:21:11 host llama[55781]: 0.15.079.619 I ", "I", 15.079619),
        ("2025-10-10T15:56:09+02:00 deepseek-r1.server[213782]: ", None, None),
        ("deep-seek-1  | ", None, None),
        ("llama-cpp    | 0.00.000.500 W ", "W", 0.0005),
        ("2025-10-01T10:00:00.000000000Z stderr F ", None, None),
        ("2024-10-11T12:57:10.215Z [CORTEX]::Error: ", None, None),
        ("1:17AM DBG GRPC(gpt-vision-127.0.0.1:33595): stdout ", "D", None),
        ("[2024-12-11 21:39:18.096] [info] [WASI-NN] llama.cpp: ", "I", None),
        ("12:55:04-837477 ERROR    ", None, None),
        ("[1717816557] ", None, None),
        ("[WARNING] ", "W", None),
        ("#   W ", "W", None),
        ("> ", None, None),
        ("    ", None, None),
        ("\t\t\t0.00.951.571 E ", "E", 0.951571),
        ("│ ", None, None),
    ],
)
def test_layers(prefix: str, level: str | None, time_s: float | None) -> None:
    line = make_line(1, prefix + MESSAGE)
    assert line.message.endswith(MESSAGE)
    assert line.text == prefix + MESSAGE
    if prefix != "12:55:04-837477 ERROR    ":
        assert line.message == MESSAGE
        assert line.level == level
        assert line.time_s == (None if time_s is None else pytest.approx(time_s))


@pytest.mark.parametrize(
    ("record", "message", "level"),
    [
        ('{"type":"log","time":722743,"level":"E","msg":"load: x"}', "load: x", "E"),
        ('{"log":"load: x\\n","stream":"stderr","time":"2025-10-01T10:00:00Z"}', "load: x", None),
        ('{"MESSAGE":"load: x","_PID":"1"}', "load: x", None),
        (
            '{"function":"load_model","level":"ERR","msg":"unable to load model"}',
            "load_model: unable to load model",
            "E",
        ),
        ('{"log":"Jan 26 17:50:35 host ollama[1418]: 0.15.079.619 I load: x\\n"}', "load: x", "I"),
    ],
)
def test_json_lines(record: str, message: str, level: str | None) -> None:
    assert strip(record)[:2] == (message, level)


@pytest.mark.parametrize(
    "text",
    [
        "  - CUDA0   : NVIDIA GeForce RTX 3070 (8191 MiB, 7114 MiB free)",
        "CUDA error: out of memory",
        "  current device: 0, in function alloc at ggml-cuda.cu:591",
        "[GPU] Exceeded max size of memory object allocation: requested 1 bytes",
        '{"type":"fit_memory_breakdown","data":{"rows":[]}}',
        "{not json}",
        "zsh: segmentation fault  ./main",
    ],
)
def test_what_belongs_to_the_message_stays(text: str) -> None:
    assert strip(text)[0] == text.strip()


def test_a_clipped_colour_is_a_colour_and_an_index_is_not() -> None:
    assert clean("[34m0.00.691.827[0m [32mI [0mcmn") == "0.00.691.827 I cmn"
    assert clean("tensor[12] m") == "tensor[12] m"


@given(st.text(max_size=200))
def test_any_text_has_a_message(text: str) -> None:
    message, level, _ = strip(clean(text))
    assert len(message) <= max(len(text), 1) + 20
    assert level in (None, "D", "I", "W", "E")
