"""Ask llama.cpp itself what it would allocate: its dry run, stopped before the real load."""

import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kvstudio.budget.values import Budget, EffectiveConfig
from kvstudio.diagnose.diagnose import diagnose
from kvstudio.diagnose.values import Diagnosis
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import Arg, LaunchConfig
from kvstudio.launch.environment import child_env
from kvstudio.launch.process_command import argv_to_test, config_to_test, free_port
from kvstudio.launch.process_values import EndKind, ProcessEnd, ProcessSpec
from kvstudio.launch.runner import Runner
from kvstudio.model.values import ModelInfo
from kvstudio.oracle.cache import OracleCache, cache_key
from kvstudio.oracle.correct import rows_beside
from kvstudio.oracle.read import TableReader, read_estimate
from kvstudio.oracle.values import FIT_PROGRAM, Measured, OracleResult, OracleRow
from kvstudio.runlog.values import LogLine
from kvstudio.units import format_bytes

SERVER = "llama-server"
TIMEOUT_S = 120.0
#: Settings only a server knows; the fit program would refuse them.
_SERVER_ONLY = (
    "kv_unified",
    "kv_unified_per_slot",
    "mmproj",
    "mmproj_offload",
    "spec_type",
    "model_draft",
    "n_ctx_draft",
    "draft_n_max",
    "n_gpu_layers_draft",
    "cache_type_k_draft",
    "cache_type_v_draft",
    "device_draft",
    "embeddings",
    "reranking",
    "pooling",
    "cache_ram",
    "ctx_checkpoints",
    "warmup",
    "host",
    "port",
    "api_key",
    "fit",
)


def check(
    config: LaunchConfig,
    binary: Binary,
    model: ModelInfo | None = None,
    *,
    budget: Budget | None = None,
    effective: EffectiveConfig | None = None,
    devices: Iterable[str] = (),
    cache: OracleCache | None = None,
    cancel: threading.Event | None = None,
    timeout_s: float = TIMEOUT_S,
) -> OracleResult:
    """What `binary` says it would allocate for `config`, beside `budget`; blocks for about a second.

    Nothing is allocated but recurrent state, and nothing is left running. `devices`: names of the devices in use, part
    of what a remembered result belongs to. Never raises for what the program does: `says` tells.
    """
    effective = effective or (budget.config if budget else None)
    n_embd = model.n_embd if model is not None else None
    method, argv, env = _command(config, binary)
    if method is None:
        return OracleResult(
            SERVER, (), (), f"{binary.title} has no dry run (no --fit option, no {FIT_PROGRAM} beside it)."
        )
    key = cache_key(binary, model, config, effective, devices, env) if model is not None else None
    known = cache.get(key) if cache is not None and key is not None else None
    if known:
        rows = rows_beside(known, budget, n_embd, method)
        return OracleResult(method, argv, rows, verdict(rows), _notes(method, config), cached=True)
    dry = _run(method, argv, env, cancel, timeout_s)
    if not dry.rows:
        return OracleResult(
            method, argv, (), dry.says, seconds=dry.end.seconds, diagnosis=dry.diagnosis, cancelled=dry.cancelled
        )
    if cache is not None and key is not None:
        cache.put(key, dry.rows)
    rows = rows_beside(dry.rows, budget, n_embd, method)
    return OracleResult(method, argv, rows, verdict(rows), _notes(method, config), dry.end.seconds)


def verdict(rows: tuple[OracleRow, ...]) -> str:
    """How far the estimate was off, in one sentence."""
    known = [row for row in rows if row.difference is not None]
    strange = tuple(dict.fromkeys(row.device for row in rows if row.measured is not None and row.estimated is None))
    if known and strange:
        used = " and ".join(strange)
        return f"llama.cpp used {used}, which the estimate was not made for: its list of devices was another one."
    if not known:
        return "Measured; there is no estimate to compare with."
    off = [row for row in known if row.difference]
    if not off:
        return f"llama.cpp's own dry run agrees: {len(known)} of {len(known)} sizes."
    worst = max(off, key=lambda row: abs(row.difference or 0))
    difference = worst.difference or 0
    how = "high" if difference > 0 else "low"
    return (
        f"{len(known) - len(off)} of {len(known)} sizes agree; the largest difference is the {worst.kind} memory of "
        f"{worst.device}, estimated {format_bytes(abs(difference))} too {how}."
    )


def _command(config: LaunchConfig, binary: Binary) -> tuple[str | None, tuple[str, ...], dict[str, str]]:
    """(method, argv, environment) of the dry run this binary can make; no method when it has none."""
    if binary.program != FIT_PROGRAM and {"-fit", "--fit"} & binary.flags:
        tested = config_to_test(config.evolve(fit=True), binary, free_port())
        if "--log-jsonl" in binary.flags:
            # One line then holds the whole table, whatever the verbosity.
            tested = replace(tested, layout=(*tested.layout, Arg(None, ("--log-jsonl",))))
        return SERVER, argv_to_test(tested, binary, "", 1), child_env(tested.env, binary)
    program = _fit_program(binary)
    if program is None:
        return None, (), {}
    fit_binary = replace(binary, path=program, program=FIT_PROGRAM, flags=frozenset())
    plain = config_to_test(config.evolve(**dict.fromkeys(_SERVER_ONLY)), fit_binary, 0)
    plain = replace(plain, host=None, port=None)
    argv = (*argv_to_test(replace(plain, program=FIT_PROGRAM), fit_binary, "", 1), "-fitp", "on")
    return FIT_PROGRAM, argv, child_env(plain.env, binary)


def _fit_program(binary: Binary) -> str | None:
    if binary.program == FIT_PROGRAM:
        return binary.path
    path = Path(binary.path)
    beside = path.with_name(FIT_PROGRAM + path.suffix)
    return str(beside) if beside.is_file() and os.access(beside, os.X_OK) else None


class _Dry:
    """A dry run that is over."""

    def __init__(self, end: ProcessEnd, rows: tuple[Measured, ...], lines: tuple[LogLine, ...]) -> None:
        self.end, self.rows = end, rows
        self.cancelled = end.kind is EndKind.CANCELLED
        self.diagnosis: Diagnosis | None = None
        self.says = ""
        if not rows:
            self._explain(lines)

    def _explain(self, lines: tuple[LogLine, ...]) -> None:
        if self.end.kind is EndKind.COULD_NOT_START:
            self.says = self.end.message
        elif self.end.kind is EndKind.TIMED_OUT:
            self.says = f"The dry run gave no answer: {self.end.message}."
        elif self.cancelled:
            self.says = "Cancelled."
        else:
            self.diagnosis = diagnose(lines)
            self.says = f"The dry run ended without its table. {self.diagnosis.summary}".strip()


def _run(
    method: str, argv: tuple[str, ...], env: dict[str, str], cancel: threading.Event | None, timeout_s: float
) -> _Dry:
    table = TableReader()

    def take(chunk: bytes) -> None:
        # The real load follows at once; what matters has been said.
        if table.feed(chunk) and method == SERVER:
            runner.stop()

    # A short grace: the server is stopped in the middle of loading and has nothing to save.
    spec = ProcessSpec(argv, tuple(env.items()))
    runner = Runner(spec, on_bytes=take, cancel=cancel, timeout_s=timeout_s, grace_s=1.0)
    with runner:
        end = runner.wait()
    assert end is not None
    table.close()
    lines = tuple(table.lines)
    rows = table.rows if method == SERVER else read_estimate(lines)
    if method == FIT_PROGRAM and end.exit_code != 0:
        rows = ()
    return _Dry(end, rows, lines)


def _notes(method: str, config: LaunchConfig) -> tuple[str, ...]:
    notes = ["figures are whole MiB, cut off"]
    if method == FIT_PROGRAM:
        notes.append(f"{FIT_PROGRAM} knows no server defaults: slots count one unless they were typed")
    if config.mmproj or config.model_draft:
        notes.append("the first table holds the model itself, not its projector or draft model")
    return tuple(notes)
