"""What is sent and how answers are read, whatever a server makes of it."""

import base64
import struct

import pytest

from kvstudio.verify.client import Answer
from kvstudio.verify.endpoints import (
    CHAT,
    COMPLETION,
    EMBEDDING,
    RERANK,
    body_for,
    endpoint_for,
    is_refused,
    largest_batch,
    picture_url,
    read_reply,
)
from kvstudio.verify.options import LaunchOptions


def reply(endpoint, body, status=200):
    return read_reply(endpoint, Answer(status, body), 1.0)


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ((None, None, None), COMPLETION),
        ((True, None, "mean"), EMBEDDING),
        ((True, True, None), RERANK),
        ((True, None, "rank"), RERANK),
    ],
)
def test_settings_decide_the_endpoint(settings, endpoint):
    assert endpoint_for(*settings) == endpoint


def test_the_speed_of_an_answer_is_the_servers_own_count():
    timings = {"predicted_n": 16, "predicted_per_second": 31.42}
    body = {"content": "sea", "tokens_predicted": 16, "tokens_evaluated": 38, "timings": timings}
    assert reply(COMPLETION, body).says == "38 prompt tokens, 16 generated at 31.4 tokens/s"
    one = body | {"tokens_predicted": 1, "timings": {"predicted_n": 1, "predicted_per_second": 1e6}}
    assert reply(COMPLETION, one).says == "38 prompt tokens, 1 generated"


@pytest.mark.parametrize(
    "message",
    [
        {"content": "a ramp"},
        {"content": "", "reasoning_content": "it is a ramp"},
        {"content": None, "reasoning_content": "it is"},
    ],
)
def test_a_chat_that_only_thinks_has_generated_too(message):
    body = {"choices": [{"message": message}], "usage": {"completion_tokens": 4, "prompt_tokens": 90}}
    found = reply(CHAT, body)
    assert (found.ok, found.tokens, found.prompt_tokens) == (True, 4, 90)
    assert found.text


@pytest.mark.parametrize("body", [None, [], {}, {"choices": 3, "usage": []}, {"data": []}, "x", {"results": {}}])
@pytest.mark.parametrize("endpoint", [COMPLETION, CHAT, EMBEDDING, RERANK])
def test_an_answer_without_what_was_asked_for_is_no_answer(endpoint, body):
    assert not reply(endpoint, body).ok


def test_a_broken_connection_is_told_from_an_error_and_a_slow_answer():
    assert read_reply(COMPLETION, Answer(None, None, "the connection broke: reset"), 1.0).broken
    assert not read_reply(COMPLETION, Answer(None, None, "no answer within 1 s", True), 1.0).broken
    assert not reply(COMPLETION, {"error": {"message": "no"}}, 500).broken


def test_refusals_are_told_from_failures():
    assert is_refused("HTTP 501: This server does not support embeddings.")
    assert is_refused("HTTP 500: the current context does not support logits computation. skipping")
    assert not is_refused("HTTP 500: Compute error.")
    says = "input (1843 tokens) is too large to process. increase the physical batch size (current batch size: 512)"
    assert largest_batch(f"HTTP 500: {says}") == 512
    assert largest_batch("HTTP 500: Compute error.") is None


def test_the_picture_is_a_small_png():
    kind, _, text = picture_url().partition(",")
    data = base64.b64decode(text)
    assert kind == "data:image/png;base64"
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (64, 64)
    assert len(data) < 8000
    (message,) = body_for(CHAT, "What is it?", LaunchOptions())["messages"]
    assert [part["type"] for part in message["content"]] == ["image_url", "text"]
