import pytest

from kvstudio.errors import HeaderError
from kvstudio.model.describe import describe
from kvstudio.model.overrides import overridden, parse_overrides
from tests.budget.models import header


def test_several_values_in_several_words() -> None:
    values, errors = parse_overrides(["a.b=int:-12x,a.c=float:1.5e1", "d=bool:false,e=str:x=y:z", "a.b=int:7"])

    assert values == {"a.b": -12, "a.c": 15.0, "d": False, "e": "x=y:z"}
    assert errors == ()


def test_numbers_without_digits_are_zero() -> None:
    assert parse_overrides(["a=int:x,b=float:"])[0] == {"a": 0, "b": 0.0}


@pytest.mark.parametrize("text", ["a", "a=3", "a=bool:yes", "a=long:3"])
def test_what_is_no_value_is_refused(text: str) -> None:
    values, errors = parse_overrides([text])

    assert values == {}
    assert len(errors) == 1
    assert text in errors[0]


def test_values_of_the_files_type_replace_and_new_ones_are_added() -> None:
    model = describe(header(expert_count=8, expert_used_count=4))
    changed = overridden(model, {"llama.context_length": 1024, "llama.expert_used_count": 2, "llama.block_count": 3.0})

    assert (changed.n_ctx_train, changed.n_expert_used, changed.n_layer) == (1024, 2, 4)
    assert overridden(model, {"llama.attention.key_length": 96}).layers[0].n_embd_head_k == 96
    assert (model.n_ctx_train, model.n_expert_used) == (8192, 4)


def test_lists_stay_and_nothing_new_is_the_same_model() -> None:
    model = describe(header(attention__head_count_kv=[8, 4, 8, 4]))

    assert overridden(model, {"llama.attention.head_count_kv": 1, "llama.context_length": 8192}) is model


def test_the_changed_model_is_remembered() -> None:
    model = describe(header())

    assert overridden(model, {"llama.context_length": 1}) is overridden(model, {"llama.context_length": 1})


def test_absurd_values_are_an_error() -> None:
    with pytest.raises(HeaderError):
        overridden(describe(header()), {"llama.embedding_length": 0})
