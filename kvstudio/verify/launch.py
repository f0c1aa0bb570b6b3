"""The test launch: start the chosen binary with our settings, watch it, ask it, stop it, and say what was proved."""

import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from kvstudio.budget.values import Budget
from kvstudio.devices.values import Machine
from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.launch import process_command
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.environment import child_env
from kvstudio.launch.process_values import ProcessEnd, ProcessSpec
from kvstudio.launch.runner import Runner
from kvstudio.runlog.values import LogLine, Phase
from kvstudio.verify import memory
from kvstudio.verify.checks import Seen, check_all
from kvstudio.verify.client import Client
from kvstudio.verify.endpoints import endpoint_for
from kvstudio.verify.options import LaunchOptions
from kvstudio.verify.outcome import Ending, decide, says, signal_of
from kvstudio.verify.requests import Conversation
from kvstudio.verify.values import MemorySample, Run, RunOutcome
from kvstudio.verify.watch import PHASE_NAMES, Watch

OnLines = Callable[[tuple[LogLine, ...]], None]
OnPhase = Callable[[Phase, str, float], None]
OnSample = Callable[[MemorySample], None]

#: How often lines and phases are handed on.
TICK_S = 0.05
#: A trace keeps at most this many points: then every second one is dropped and sampling slows down.
MAX_SAMPLES = 2000
#: A server that breaks a connection is dying; so long it may take to be gone by itself, for that is how it ended.
OWN_END_S = 2.0
#: How long the requests thread may take to notice that the server is gone.
JOIN_S = 10.0
_PORT_TAKEN = ("couldn't bind", "address already in use", "Address already in use")
_PORT_TRIES = 3


def test_launch(
    config: LaunchConfig,
    binary: Binary | None,
    *,
    options: LaunchOptions | None = None,
    on_lines: OnLines | None = None,
    on_phase: OnPhase | None = None,
    on_sample: OnSample | None = None,
    cancel: threading.Event | None = None,
    budget: Budget | None = None,
    machine: Machine | None = None,
) -> Run:
    """One whole launch, from start to clean stop; blocks, and calls back on the calling thread only.

    Never raises for anything the launched program does: that is the Run's outcome. `on_phase` gets the phase,
    `running`, `done` or `failed`, and seconds since the start. `cancel` ends it at any moment. `budget` and `machine`
    are what was known before; the checks compare with them.
    """
    options = options or LaunchOptions()
    cancel = cancel or threading.Event()
    run = None
    for _ in range(_PORT_TRIES):
        launch = _Launch(config, binary, options, cancel, budget, machine)
        run, port_taken = launch.go(on_lines, on_phase, on_sample)
        if not port_taken or cancel.is_set():
            break
    assert run is not None
    return run


class _Launch:
    """One process and everything around it."""

    def __init__(
        self,
        config: LaunchConfig,
        binary: Binary | None,
        options: LaunchOptions,
        cancel: threading.Event,
        budget: Budget | None,
        machine: Machine | None,
    ) -> None:
        self._config, self._binary, self._options = config, binary, options
        self._cancel, self._budget, self._machine = cancel, budget, machine
        self._port = process_command.free_port()
        self._tested = process_command.config_to_test(config, binary, self._port)
        self._spelled, self._lost = process_command.spelled(config, binary)
        self._has_server = process_command.is_server(binary, config)
        self._argv = process_command.argv_to_test(self._tested, binary, options.prompt, options.n_predict)
        self._log_path = _log_path(options.log_dir)
        self._watch = Watch(self._on_phase_began)
        self._samples: list[MemorySample] = []
        self._sample_s = options.sample_s
        self._next_sample = 0.0
        self._talked_at = 0.0
        self._resident: memory.Resident | None = None
        self._counter = memory.Counter(machine)
        self._used_before = self._counter()
        self._stop_talk = threading.Event()
        self._started_at = time.time()
        env = child_env(self._tested.env, binary)
        spec = ProcessSpec(self._argv, tuple(env.items()), None, options.address_space_limit_bytes)
        self._runner = Runner(
            spec, log_path=self._log_path, on_bytes=self._watch.feed, cancel=cancel, timeout_s=options.timeout_s
        )
        self._conversation = Conversation(
            Client(self._port, config.api_key),
            options,
            endpoint=endpoint_for(config.embeddings, config.reranking, config.pooling),
            on_phase=self._watch.reach,
            stop=self._stop_talk,
            projector=bool(config.mmproj),
        )

    def go(self, on_lines: OnLines | None, on_phase: OnPhase | None, on_sample: OnSample | None) -> tuple[Run, bool]:
        """(the finished run, whether its port was taken by somebody else in between)."""
        self._runner.limit_phase("starting", self._options.phase_timeout_s)
        talker = threading.Thread(target=self._conversation.run, name="kvstudio-requests", daemon=True)
        self._watch.begin()
        with self._runner:
            if self._has_server:
                talker.start()
            try:
                while self._runner.wait(TICK_S) is None:
                    self._show(on_lines, on_phase)
                    self._take_sample(on_sample)
                    if self._may_stop():
                        self._runner.stop()
                self._watch.close()
                self._show(on_lines, on_phase)
            finally:
                self._stop_talk.set()
                self._counter.close()
        if talker.ident is not None:
            talker.join(JOIN_S)
        end = self._runner.end
        assert end is not None
        run = self._finish(end)
        self._show(on_lines, on_phase)
        return run, run.outcome is RunOutcome.FAILED and self._port_taken()

    def _may_stop(self) -> bool:
        """Whether all was asked, and the server is not about to end by itself."""
        talk = self._conversation.talk
        if not talk.done or self._options.keep_running:
            return False
        self._talked_at = self._talked_at or self._runner.seconds
        dying = any(reply.broken for reply in talk.replies)
        return not dying or self._runner.seconds - self._talked_at > OWN_END_S

    def _on_phase_began(self, phase: Phase) -> None:
        waits = phase in (Phase.GENERATE, Phase.REPEAT)
        # Answers carry their own limit each, so the phase as a whole may take several of them.
        self._runner.limit_phase(PHASE_NAMES[phase], None if waits else self._options.phase_timeout_s)

    def _show(self, on_lines: OnLines | None, on_phase: OnPhase | None) -> None:
        lines, phases = self._watch.take()
        if lines and on_lines is not None:
            on_lines(lines)
        if on_phase is not None:
            for phase, state, at in phases:
                on_phase(phase, state, at)

    def _take_sample(self, on_sample: OnSample | None) -> None:
        now = self._runner.seconds
        if now < self._next_sample:
            return
        self._next_sample = now + self._sample_s
        if self._resident is None and self._runner.pid is not None:
            self._resident = memory.Resident(self._runner.pid)
        held = self._resident.bytes() if self._resident is not None else None
        point = memory.sample(now, held, self._counter(), self._watch.printed_per_device())
        self._samples.append(point)
        if len(self._samples) > MAX_SAMPLES:
            self._samples = self._samples[::2]
            self._sample_s *= 2
        if on_sample is not None:
            on_sample(point)

    def _port_taken(self) -> bool:
        return any(word in line.text for line in self._watch.lines() for word in _PORT_TAKEN)

    def _finish(self, end: ProcessEnd) -> Run:
        talk = self._conversation.talk
        lines, events, buffers = self._watch.lines(), self._watch.events(), self._watch.buffers()
        seen = Seen(self._config, self._binary, lines, events, buffers, talk, self._budget, self._has_server)
        checks = check_all(seen)
        first_lines = tuple(line.text for line in lines[:5])
        ending = Ending(end, talk, self._cancel.is_set(), self._has_server, first_lines)
        outcome = decide(ending, checks)
        diagnosis = None
        if outcome not in (RunOutcome.CANCELLED, RunOutcome.COULD_NOT_START):
            diagnosis = diagnose(lines, events, self._budget)
        diagnosis = _worth_telling(outcome, diagnosis)
        self._mark_failure(outcome, diagnosis)
        samples = tuple(self._samples)
        peak = memory.peaks((*samples, self._last_sample(end)), end.peak_rss_bytes)
        counted = tuple(sorted(self._used_before))
        counted_peak = {name: used for name, used in peak if name in self._used_before}
        began = tuple((phase, at) for phase, _, at in self._watch.phases())
        return Run(
            number=self._options.number,
            config=self._config,
            argv=self._argv,
            env=self._config.env,
            binary=self._binary,
            outcome=outcome,
            reached=self._watch.reached(),
            phases=tuple((phase, state) for phase, state, _ in self._watch.phases()),
            seconds=end.seconds,
            started_at=self._started_at,
            exit_code=end.exit_code,
            signal=signal_of(end),
            buffers=buffers,
            peak=peak,
            free_before=memory.free_before(self._machine),
            samples=samples,
            checks=checks,
            diagnosis=diagnosis,
            log_path=str(self._log_path) if self._log_path is not None else None,
            message="; ".join(part for part in (end.message, end.hint) if part),
            says=says(outcome, ending, checks, diagnosis),
            phase_times=began,
            counted=counted,
            overhead=memory.learned_overhead(self._used_before, counted_peak, buffers),
            prompts=tuple((kind, r.ok, r.seconds, r.says) for kind, replies in talk.groups for r in replies),
            answer=talk.first.text if talk.first else "",
            pauses=self._watch.pauses(),
            spelled=self._spelled,
            lost=self._lost,
        )

    def _last_sample(self, end: ProcessEnd) -> MemorySample:
        """What was printed after the last look counts for the peak too."""
        return MemorySample(end.seconds, tuple(sorted(self._watch.printed_per_device().items())))

    def _mark_failure(self, outcome: RunOutcome, diagnosis: Diagnosis | None) -> None:
        """The phase in which it ended is marked failed: the diagnosis's stage, else the one that was running."""
        phases = {phase: state for phase, state, _ in self._watch.phases()}
        if outcome in (RunOutcome.VERIFIED, RunOutcome.COULD_NOT_START):
            return
        stage = diagnosis.stage if diagnosis is not None and diagnosis.outcome is Outcome.FAILED else None
        named = Phase(stage) if stage in {phase.value for phase in Phase} else None
        running = [phase for phase, state in phases.items() if state == "running"]
        # Buffers are printed before they are filled, so the furthest phase may say done while it is still at work.
        furthest = running[-1] if running else self._watch.reached()
        where = named if named is not None and Phase.LISTENING not in phases else furthest
        if outcome is RunOutcome.STARTED and all(reply.ok for reply in self._conversation.talk.replies):
            return
        if where is not None and phases.get(where) != "failed":
            self._watch.fail(where)


def _worth_telling(outcome: RunOutcome, diagnosis: Diagnosis | None) -> Diagnosis | None:
    """Of a launch that came up, only what went wrong in it or was overcome on the way; that no line shows a failure is
    nothing to tell of one that was not waited for."""
    if diagnosis is None or outcome not in (RunOutcome.VERIFIED, RunOutcome.STARTED, RunOutcome.TIMED_OUT):
        return diagnosis
    if outcome is RunOutcome.TIMED_OUT:
        return None if diagnosis.outcome is Outcome.OK else diagnosis
    telling = (Outcome.RECOVERED,) if outcome is RunOutcome.VERIFIED else (Outcome.RECOVERED, Outcome.FAILED)
    return diagnosis if diagnosis.outcome in telling else None


def _log_path(log_dir: str | None) -> Path | None:
    """A new file for the log, named by the moment; None where no file can be made, which the run then says."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    try:
        if log_dir is not None:
            Path(log_dir).mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(".log", f"launch-{stamp}-", log_dir)
    except OSError:
        return None
    with open(handle, "wb"):
        return Path(path)
