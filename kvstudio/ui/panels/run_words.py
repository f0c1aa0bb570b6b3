"""What the run area says: what a launch does now, how it ended, what devices held at most."""

from collections.abc import Sequence

from kvstudio.runlog.values import Phase
from kvstudio.ui.panels.run_values import clock
from kvstudio.ui.text import device_names, gib, tr
from kvstudio.ui.widgets_run.phase_strip import Figure, phase_name
from kvstudio.verify.values import Run, RunOutcome


def doing(phase: Phase) -> str:
    """What goes on in a phase."""
    words = {
        Phase.FIT: tr("Measuring what fits"),
        Phase.WEIGHTS: tr("Loading the weights"),
        Phase.KV: tr("Allocating the KV cache"),
        Phase.RS: tr("Allocating the recurrent state"),
        Phase.COMPUTE: tr("Reserving the compute buffers"),
        Phase.WARMUP: tr("Warming up"),
        Phase.LISTENING: tr("Listening"),
        Phase.GENERATE: tr("Answering the prompt"),
        Phase.REPEAT: tr("Answering again, one after the other and at once"),
    }
    return words.get(phase, phase_name(phase))


def figures_of(run: Run) -> tuple[Figure, ...]:
    """Number, time and peaks of a finished run."""
    words = {
        RunOutcome.VERIFIED: tr("Run {}"),
        RunOutcome.STARTED: tr("Run {}, started in"),
        RunOutcome.FAILED: tr("Run {}, failed after"),
        RunOutcome.CRASHED: tr("Run {}, crashed after"),
        RunOutcome.KILLED: tr("Run {}, killed after"),
        RunOutcome.TIMED_OUT: tr("Run {}, timed out after"),
        RunOutcome.CANCELLED: tr("Run {}, cancelled after"),
        RunOutcome.COULD_NOT_START: tr("Run {}, could not start"),
    }
    first = Figure(words[run.outcome].format(run.number), clock(run.seconds))
    device = run.diagnosis.device if run.diagnosis is not None else None
    return (first, *peak_figures(run.peak, device if run.outcome is not RunOutcome.VERIFIED else None))


def peak_figures(peak: Sequence[tuple[str, int]], device: str | None) -> tuple[Figure, ...]:
    """The culprit's peak, else those of the devices (of many, the two fullest), else the host's."""
    devices = [(name, used) for name, used in peak if name != "Host"] or list(peak)
    named = [(name, used) for name, used in devices if name == device]
    shown = named or (devices if len(devices) <= 3 else sorted(devices, key=lambda p: -p[1])[:2])
    names = device_names(name for name, _ in peak)
    return tuple(
        Figure(tr("Peak {}").format(names[name]) if i == 0 else names[name], f"{gib(used)} GiB")
        for i, (name, used) in enumerate(shown)
    )
