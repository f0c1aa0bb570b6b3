"""What the wizard says of a walk, read without a window."""

from dataclasses import replace

from kvstudio.advise.plan_values import Verdict
from kvstudio.devices.values import Device, DeviceProcess
from kvstudio.ui.wizard.from_plan import entries, facts, wizard_view
from kvstudio.ui.wizard.values import Action, RunState
from kvstudio.ui.wizard.words import (
    baseline_words,
    change_of,
    competing_words,
    failure_words,
    flags_in,
    prediction_words,
    sizes,
    title_of,
)
from kvstudio.units import GIB, MIB
from tests.ui import samples, wizard_samples


def test_the_record_names_baseline_runs_and_the_next():
    rows = entries(wizard_samples.walking())
    assert [(row.state, row.number) for row in rows] == [
        (RunState.NOTE, ""),
        (RunState.FAILED, "1"),
        (RunState.WORKED, "2"),
        (RunState.NEXT, "next"),
    ]
    assert rows[0].detail == "b11434, 2 devices; python3 holds 7.6 GiB"
    assert rows[1].detail == "KV cache on CUDA1, 0.9 GiB short"
    assert rows[2].detail == "works, CUDA1 18.0 of 24.0 GiB"
    assert rows[3].detail == "predicted to fit"


def test_a_page_shows_the_one_variable_as_typed():
    page = wizard_view(wizard_samples.walking()).page
    assert page.section == "Split ratio"
    assert (page.change.before, page.change.after) == ("-ts 1,1", "no -ts")
    assert page.change.note == "the only change from run 1"
    assert [p.chip for p in page.pictures] == ["Run 1, failed", "Predicted to fit"]
    assert [p.state for p in page.pictures] == ["bad", "good"]
    assert page.config == wizard_samples.WORKS


def test_a_changed_value_has_both_sides():
    change = change_of(samples.CONFIG, wizard_samples.SMALLEST.trial)
    assert (change.before, change.after) == ("-c 65536", "-c 4096")


def test_costs_are_facts():
    plan = wizard_samples.walking()
    said = {fact.label: fact for fact in facts(plan, plan.pending)}
    assert said["Cost"].value == "No cost"
    assert said["Room left"].value == "1.8 GiB"
    assert said["Room left"].note == "on CUDA1, the tighter device"
    assert said["This try"].value == "About 20 s"
    assert said["Launches"].value == "6 left"


def test_the_foot_offers_what_makes_sense():
    plan = wizard_samples.walking()
    ready = wizard_view(plan, can_go_back=True)
    assert ready.actions == (Action.STOP, Action.WHY_NOT, Action.BACK, Action.SKIP, Action.TRY)
    assert ready.primary is Action.TRY
    running = wizard_view(plan, progress=wizard_samples.PROGRESS)
    assert (running.actions, running.primary) == ((Action.CANCEL,), None)
    assert running.entries[-1].state is RunState.RUNNING
    first = replace(plan, attempts=(), pending=wizard_samples.AS_GIVEN.trial)
    assert Action.SKIP not in wizard_view(first).actions, "the first run cannot be skipped"
    done = wizard_view(wizard_samples.walked())
    assert done.primary is Action.COPY
    nothing = replace(wizard_samples.walked(), verdict=Verdict("no_fit", "Nothing helps.", None, None))
    assert wizard_view(nothing).primary is Action.REPORT
    assert Action.COPY not in wizard_view(nothing).actions


def test_the_result_lists_every_controlled_run():
    page = wizard_view(wizard_samples.walked(), checks=wizard_samples.CHECKS).page
    assert page.state == "good"
    assert page.why.startswith("It was the split ratio.")
    assert [(run.number, run.change, run.worked) for run in page.runs] == [
        ("1", "as given", False),
        ("2", "-c 65536 → -c 4096", True),
        ("3", "-ts 1,1 → no -ts", True),
    ]
    assert page.runs[2].sizes == ("CUDA0 21.2, CUDA1 14.6", "CUDA0 20.8, CUDA1 14.2")
    assert len(page.checks) == 6


def test_who_holds_the_memory_is_said_first():
    start = replace(wizard_samples.walking(), attempts=(), pending=wizard_samples.AS_GIVEN.trial)
    assert wizard_view(start).page.notice == "python3 holds 7.6 GiB: ending it may be all that is needed."
    assert wizard_view(wizard_samples.walking()).page.notice == "", "a change is under way"
    roomy = replace(wizard_samples.AS_GIVEN.trial, predicted=samples.FITS)
    assert wizard_view(replace(start, pending=roomy)).page.notice == ""


def test_predictions_in_words():
    assert prediction_words(samples.FAILS) == "predicted to be 0.9 GiB short on CUDA1"
    assert prediction_words(None) == "not known whether it fits"


def test_failures_without_figures_keep_the_words_of_the_diagnosis():
    vague = replace(wizard_samples.REFUSED, free_bytes=None)
    assert failure_words(vague, "failed") == "The KV cache did not fit on CUDA1"
    assert failure_words(None, "timed_out") == "timed out"


def test_little_memory_of_others_is_not_worth_a_word():
    quiet = Device("CUDA0", "CUDA", total_bytes=24 * GIB, processes=(DeviceProcess(1, "Xorg", GIB // 4),))
    assert competing_words((quiet,)) == ""
    plan = replace(wizard_samples.walking(), world=replace(wizard_samples.world(), devices=(quiet,), build=None))
    assert baseline_words(plan) == "1 device"


def test_flags_of_a_sentence_are_typed_and_hyphens_are_not():
    said = "Without -ts (or --split-mode none), well-known layers stay; -c 4096 is enough, -1 is not."
    assert flags_in(said) == ("-ts", "--split-mode", "-c")


def test_a_title_has_the_word_of_the_settings_panel():
    trial = replace(wizard_samples.AS_GIVEN.trial, variable="cache_type_v", title="cache_type_v f16")
    assert title_of(trial) == "V type f16"
    assert title_of(replace(trial, variable="n_ctx", title="Edge: n_ctx 49152")) == "Edge: context 49152"
    assert title_of(replace(trial, variable="n_gpu_layers", title="Edge: n_gpu_layers 9")) == "Edge: GPU layers 9"
    assert title_of(wizard_samples.AS_GIVEN.trial) == wizard_samples.AS_GIVEN.trial.title


def test_small_sizes_have_their_own_units():
    assert sizes({"CUDA0": 2 * GIB, "CUDA1": 30 * MIB}) == "CUDA0 2.0, CUDA1 0.0"
    assert sizes({"Host": 6 * MIB}) == "Host 6.0 MiB"
    assert sizes({}) == "–"


def test_a_walk_that_finds_nothing_shows_where_it_is_short():
    nothing = replace(wizard_samples.walked(), verdict=Verdict("no_fit", "Nothing helps.", None, None))
    assert [p.title for p in wizard_view(nothing).page.pictures] == ["As given"]
    assert wizard_view(wizard_samples.walked()).page.pictures == ()
