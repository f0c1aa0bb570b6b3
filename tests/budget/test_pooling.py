import pytest

from kvstudio.budget.effective import resolve
from kvstudio.budget.pooling import asked_pooling, pooling_kind, takes_means
from kvstudio.launch.argv import parse_argv
from kvstudio.model.describe import describe
from tests.budget.models import header


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ((), None),
        (("--reranking",), "rank"),
        (("--pooling", "cls"), "cls"),
        (("--pooling", "cls", "--reranking"), "rank"),
        (("--reranking", "--pooling", "cls"), "cls"),
    ],
)
def test_the_later_word_holds(typed: tuple[str, ...], kind: str | None) -> None:
    assert asked_pooling(parse_argv(("llama-server", *typed))) == kind


def test_the_file_decides_where_nothing_is_asked_for() -> None:
    model = describe(header(pooling_type=3))

    assert pooling_kind(model, None) == "last"
    assert pooling_kind(model, "mean") == "mean"
    assert pooling_kind(describe(header()), None) == "none"


def test_a_classifier_may_rank_means() -> None:
    assert takes_means(describe(header(classifier__pooling_type=1)), "rank")
    assert not takes_means(describe(header()), "rank")
    assert takes_means(describe(header()), "mean")


@pytest.mark.parametrize(
    ("typed", "refused"),
    [
        (("-np", "3"), True),
        (("-np", "3", "-kvu"), True),
        (("-np", "3", "-ub", "510"), False),
        (("-np", "4"), False),
        (("-np", "3", "-c", "256"), True),
    ],
)
def test_slots_that_do_not_divide_the_micro_batch_abort_a_mean(typed: tuple[str, ...], refused: bool) -> None:
    words = ("llama-server", "-c", "1536", "--embeddings", "--pooling", "mean", *typed)
    errors = resolve(describe(header()), parse_argv(words), 1).errors

    assert any("pooling by mean" in error for error in errors) is refused


def test_without_embeddings_nothing_is_pooled() -> None:
    words = ("llama-server", "-c", "1536", "--pooling", "mean", "-np", "3")

    assert resolve(describe(header()), parse_argv(words), 1).errors == ()


def test_a_batch_below_the_slots_aborts() -> None:
    def errors(n_batch: str) -> tuple[str, ...]:
        return resolve(describe(header()), parse_argv(("llama-server", "-np", "6", "-b", n_batch)), 1).errors

    assert any("-b 5 aborts" in error for error in errors("5"))
    assert errors("6") == ()


@pytest.mark.parametrize(("kind", "rows"), [("laya", True), ("clef", True), ("lev", False)])
def test_decision_models_that_score_rows_embed_by_themselves(kind: str, rows: bool) -> None:
    model = describe(header(decision__type=kind, pooling_type=1))

    assert resolve(model, parse_argv(("llama-server",)), 1).embeddings is rows
    assert pooling_kind(model, "mean") == ("none" if rows else "mean")
