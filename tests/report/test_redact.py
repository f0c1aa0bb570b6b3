"""What tells on a person or a machine is found, counted, hidden, and shown again on demand."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstudio.report.redact import apply, find, identity_from, plain
from kvstudio.report.values import Identity


def hidden(text: str, identity: Identity | None = None, keys: tuple[str, ...] = ()) -> str:
    return plain(text, find([text], identity, keys))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load '/home/alice/m/x.bin'", "load '[HOME]/m/x.bin'"),
        ("load '/Users/alice/m/x.bin'", "load '[HOME]/m/x.bin'"),
        (r"load 'C:\Users\Alice Smith\m\x.bin'", r"load '[HOME]\m\x.bin'"),
        (r'"path": "C:\\Users\\alice\\m"', r'"path": "[HOME]\\m"'),
        ("/root/models/x.bin", "[HOME]/models/x.bin"),
        ("owner alice of /home/alice", "owner [USER] of [HOME]"),
        ("llama-server --host 192.168.1.20 --port 8080", "llama-server --host [IP 1] --port 8080"),
        ("connect to fe80::1ff:fe23:4567:890a", "connect to [IP 1]"),
        ("--api-key sesame-street", "--api-key [KEY 1]"),
        ("--api-key=sesame-street -c 1", "--api-key=[KEY 1] -c 1"),
        ("--api-key 'two words'", "--api-key '[KEY 1]'"),
        ("--api-key first1,second", "--api-key [KEY 1],[KEY 2]"),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer [KEY 1]"),
        ("HF_TOKEN=hf_abcdefghijklmnopqrstu", "HF_TOKEN=[KEY 1]"),
        ("token hf_abcdefghijklmnopqrstu seen", "token [KEY 1] seen"),
        ("sk-abcdefghijklmnop1234", "[KEY 1]"),
        ("MY_PASSWORD=hunter2x", "MY_PASSWORD=[KEY 1]"),
        ('{"api_key": "abcdefgh"}', '{"api_key": "[KEY 1]"}'),
        ("curl https://me:sesame12@host.lan/x", "curl https://me:[KEY 1]@[HOST]/x"),
        ("llama-cli -p 'tell me of my illness'", "llama-cli -p '[PROMPT 1]'"),
        ('request: {"prompt":"my \\"secret\\" plan","n":1}', 'request: {"prompt":"[PROMPT 1]","n":1}'),
        (r'body: "{\"content\":\"my plan\"}"', r'body: "{\"content\":\"[PROMPT 1]\"}"'),
        ("Jan 26 17:50:35 workbox ollama[1418]: x", "Jan 26 17:50:35 [HOST] ollama[1418]: x"),
        ("--rpc gpubox.lan:50052", "--rpc [HOST]:50052"),
        ("RPC0[10.1.2.3:50052]", "RPC0[[IP 1]:50052]"),
        ("mail to alice.b@firm.example.org now", "mail to [USER] now"),
    ],
)
def test_found_and_hidden(text: str, expected: str) -> None:
    assert hidden(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "0.12.199.202 E ggml_backend: allocating",
        "listening on http://127.0.0.1:8080 and 0.0.0.0",
        "driver 570.133.07, CUDA 12.8",
        "driver 31.0.15.3623",
        "PCI 0000:01:00.0 at 17:50:35",
        "ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory, std::bad_alloc",
        "special tokens cache size = 6414, token to piece cache size = 1.9446 MB",
        "print_info: BOS token = 2 '<bos>'",
        "no API key is set",
        "more info: https://github.com/ggml-org/llama.cpp/pull/25655",
        "docker run -p 8080:8080 image",
        "-ngl 99 -np 4 --parallel 4",
        "--host localhost",
        "task_memcg=/user.slice/user-1000.slice/user@1000.service",
        "--api-key ••••••••",
        "tokenizer.ggml.model str = llama",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert hidden(text) == text


def test_who_we_are_is_hidden_where_no_form_betrays_it() -> None:
    me = Identity(home="/srv/people/zoe", user="zoe", hosts=("atlas.firm.lan", "atlas"), others=("bob",))

    assert hidden("zoe@atlas runs /srv/people/zoe/x for bob; atlases and zoeys stay", me) == (
        "[USER]@[HOST] runs [HOME]/x for [USER 2]; atlases and zoeys stay"
    )
    assert hidden("atlas.firm.lan", me) == "[HOST]"


def test_an_account_name_that_is_an_everyday_word_is_not_hidden_everywhere() -> None:
    assert hidden("main: server listening, /home/main/x", Identity(user="server")) == "main: server listening, [HOME]/x"


def test_a_short_key_is_hidden_only_at_its_flag() -> None:
    text = "llama-server --api-key 4 -c 4096 -np 4"

    assert hidden(text, keys=("4",)) == "llama-server --api-key [KEY 1] -c 4096 -np 4"


def test_the_gguf_name_is_offered_but_kept() -> None:
    found = find(["load /data/Qwen3-32B.gguf"])

    assert [(r.token, r.hidden, r.places) for r in found] == [("GGUF name", False, 1)]
    assert plain("load /data/Qwen3-32B.gguf", found) == "load /data/Qwen3-32B.gguf"


def test_every_place_is_counted_over_all_texts() -> None:
    found = find(["/home/alice/a /home/alice/b", "alice", "/home/alice"])

    assert {r.token: r.places for r in found} == {"HOME": 3, "USER": 1}


def test_a_name_that_only_begins_like_the_home_is_another_one() -> None:
    assert hidden("/home/al and /home/alice").startswith("[HOME] and [HOME 2]")


def test_a_key_inside_a_prompt_leaves_nothing_of_either() -> None:
    text = "--prompt 'my key is sk-abcdefghijklmnop1234 ok' then sk-abcdefghijklmnop1234"

    shown = hidden(text)
    assert "sk-" not in shown and "my key" not in shown


def test_identity_is_read_from_an_environment() -> None:
    me = identity_from({"HOME": "/home/zoe", "USER": "zoe"}, "atlas.lan")

    assert me == Identity("/home/zoe", "zoe", (), ("atlas.lan", "atlas"), ())
    assert identity_from({"USERPROFILE": r"C:\Users\zoe", "USERNAME": "zoe"}, "").home == r"C:\Users\zoe"


@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_spans_are_the_whole_text_in_order(before: str, user: str) -> None:
    text = f"{before} /home/{user}/x 10.1.2.3 {before}"
    spans = apply(text, find([text]))

    assert "".join(s.text for s in spans) == text
    assert [s.start for s in spans] == sorted(s.start for s in spans)


def test_a_line_of_a_megabyte_takes_no_time() -> None:
    text = ("a" * 500 + '"' + "\\" * 30 + " -p ") * 2000
    start = time.perf_counter()
    find([text])

    assert time.perf_counter() - start < 5
