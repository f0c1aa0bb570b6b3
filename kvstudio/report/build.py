"""A Case and a Run, or only a log -> Report: fields, sections of the upstream form, redactions."""

from collections.abc import Sequence
from dataclasses import replace

from kvstudio.advise.record import Record
from kvstudio.case.values import Case
from kvstudio.diagnose.values import Diagnosis, Outcome
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.report import redact
from kvstudio.report.collect import (
    NO_GPU,
    Observed,
    collect,
    devices,
    exact_command,
    file_name,
    gguf_names,
    mib,
    ran_command,
)
from kvstudio.report.controlled import controlled_runs
from kvstudio.report.logfacts import LogFacts, read_facts
from kvstudio.report.values import Block, BlockKind, Field, Identity, Report, Section
from kvstudio.runlog.values import LogLine
from kvstudio.verify.values import Run

_NOT_COLLECTED = "not collected"


def build(
    case: Case,
    run: Run | None = None,
    *,
    lines: Sequence[LogLine] | None = None,
    dropped_lines: int = 0,
    identity: Identity | None = None,
    walk: Record | None = None,
) -> Report:
    """The report of one run of the case, or of the log on screen, or of the launch as it is set up.

    `lines`: the run's log; the case's own when not given. A log that belongs to no run came from elsewhere, so nothing
    of this machine is said about it. `dropped_lines`: how many lines of it were not kept. `walk`: the fix walk whose
    controlled runs belong to it.
    """
    log = tuple(case.log if lines is None else lines)
    facts = read_facts(log)
    seen = _from_run(case, run, facts) if run is not None else _from_case(case, facts, bool(log))
    seen = replace(seen, n_lines=len(log), dropped_lines=dropped_lines)
    seen = replace(seen, walk=walk)
    return _filled(seen, log, case.log_source if run is None else f"Run {run.number}", identity)


def build_from_log(
    lines: Sequence[LogLine],
    diagnosis: Diagnosis | None = None,
    config: LaunchConfig | None = None,
    *,
    source: str = "",
    dropped_lines: int = 0,
    identity: Identity | None = None,
) -> Report:
    """The report of a log from anywhere.

    `config` is what was read out of it or typed by the reporter; its command counts as known when it has a layout.
    """
    log = tuple(lines)
    seen = Observed(
        config=config or LaunchConfig(),
        facts=read_facts(log),
        command_known=config is not None and bool(config.layout),
        from_log=True,
        diagnosis=diagnosis,
        n_lines=len(log),
        dropped_lines=dropped_lines,
    )
    return _filled(seen, log, source, identity)


def texts(report: Report) -> tuple[str, ...]:
    """Every text of the report, for finding and counting what to hide."""
    blocks = tuple(b.text for s in report.sections for b in s.blocks if b.text)
    return (report.title, *blocks, *(line.text for line in report.log))


def hide_selection(report: Report, selected: str) -> Report:
    """The report with one more thing hidden everywhere it stands."""
    return replace(report, redactions=redact.hide(report.redactions, selected, texts(report)))


def _from_run(case: Case, run: Run, facts: LogFacts) -> Observed:
    same = case.budget is not None and case.config == run.config
    return Observed(
        config=run.config,
        facts=facts,
        model=case.model,
        machine=case.machine,
        binary=run.binary or case.binary,
        effective=case.budget.config if case.budget is not None and same else None,
        offloaded=case.budget.offloaded_layers if case.budget is not None and same else None,
        diagnosis=run.diagnosis,
        run=run,
        earlier=case.runs,
        chosen=case.chosen,
    )


def _from_case(case: Case, facts: LogFacts, has_log: bool) -> Observed:
    if has_log:
        config = case.config if _settings_are_of(case, facts) else LaunchConfig()
        return Observed(
            config=config,
            facts=facts,
            command_known=bool(config.layout),
            from_log=True,
            model=_same_model(case, facts),
            diagnosis=case.diagnosis,
        )
    budget = case.budget
    return Observed(
        config=case.config,
        facts=facts,
        model=case.model,
        machine=case.machine,
        binary=case.binary,
        effective=budget.config if budget else None,
        offloaded=budget.offloaded_layers if budget else None,
        diagnosis=case.diagnosis,
        earlier=case.runs,
        chosen=case.chosen,
    )


def _settings_are_of(case: Case, facts: LogFacts) -> bool:
    """Whether the settings on screen are those of the log, and not of the model that was open before."""
    names = {file_name(p) for p in facts.model_files}
    if names:
        return file_name(case.config.model_path) in names
    return case.model is None and bool(case.config.model_path or case.config.typed())


def _same_model(case: Case, facts: LogFacts) -> ModelInfo | None:
    """The open model, if the log is about it."""
    if case.model is None:
        return None
    names = {file_name(p) for p in facts.model_files}
    return case.model if any(file_name(s.path) in names for s in case.model.header.shards) else None


def _filled(seen: Observed, log: tuple[LogLine, ...], source: str, identity: Identity | None) -> Report:
    fields = collect(seen)
    report = Report(
        title=_title(seen),
        subtitle=_subtitle(seen, source),
        fields=fields,
        sections=_sections(seen, {f.id: f for f in fields}, bool(log)),
        log=log,
        key_line=seen.diagnosis.key_line if seen.diagnosis else None,
        environment=seen.run.env if seen.run else seen.config.env,
        dropped_lines=seen.dropped_lines,
        log_path=seen.run.log_path if seen.run else None,
    )
    redactions = redact.find(texts(report), _identity(seen, identity), _keys(seen))
    return replace(report, redactions=redactions)


def _identity(seen: Observed, identity: Identity | None) -> Identity:
    """What is known of the user, with the owners of processes shown."""
    known = identity or Identity()
    owners = {p.user for d in devices(seen) for p in d.processes if p.user}
    return replace(known, others=(*known.others, *sorted(owners - {known.user})))


def _keys(seen: Observed) -> tuple[str, ...]:
    secrets = [value for name, value in seen.config.env if name in ("HF_TOKEN", "LLAMA_API_KEY")]
    return tuple(v for v in (seen.config.api_key, *secrets) if v)


def _title(seen: Observed) -> str:
    if seen.diagnosis is not None and seen.diagnosis.title:
        return f"Eval bug: {seen.diagnosis.title}"
    names = gguf_names(seen)
    return f"Eval bug: {names[0]}" if names else "Eval bug"


def _subtitle(seen: Observed, source: str) -> str:
    """`Run 1, failed: The KV cache did not fit on CUDA1`."""
    if seen.run is not None:
        source = f"{source}, {seen.run.outcome.value.replace('_', ' ')}"
    what = seen.diagnosis.title if seen.diagnosis is not None else ""
    return ": ".join(part for part in (source, what) if part) or "The launch as it is set up"


def _sections(seen: Observed, fields: dict[str, Field], has_log: bool) -> tuple[Section, ...]:
    return (
        Section("Name and Version", _version_blocks(fields)),
        Section("Operating systems", (_fact(fields["os"]),)),
        Section("GGML backends", (_backend_block(fields),)),
        Section("Hardware", (_hardware_block(fields),)),
        Section("Models", (_models_block(seen, fields),)),
        Section("Problem description & steps to reproduce", _problem_blocks(seen, fields)),
        *_key_section(seen),
        *controlled_runs(seen.walk),
        Section("First Bad Commit", (_known_good_block(fields["known_good"]),)),
        Section("Relevant log output", (Block(BlockKind.LOG, "") if has_log else _fact(fields["log"]),)),
    )


def _fact(field: Field) -> Block:
    if field.value is not None:
        return Block(BlockKind.CODE, field.value)
    return Block(BlockKind.MISSING, f"Not collected. Would tell: {field.how}")


def _said(field: Field) -> str:
    """For a line that names the fact itself."""
    return field.value if field.value is not None else f"{_NOT_COLLECTED} (would tell: {field.how})"


def _version_blocks(fields: dict[str, Field]) -> tuple[Block, ...]:
    lines = [f"{_said(fields['version'])}" if fields["version"].value else f"version: {_said(fields['version'])}"]
    lines.append(f"binary: {_said(fields['binary_path'])}")
    lines.append(f"build options: {_said(fields['build_options'])}")
    return (Block(BlockKind.CODE, "\n".join(lines)),)


def _backend_block(fields: dict[str, Field]) -> Block:
    if fields["backend"].value is None:
        return _fact(fields["backend"])
    driver = "" if fields["driver"].value == NO_GPU else f", driver {_said(fields['driver'])}"
    return Block(BlockKind.CODE, f"{fields['backend'].value}{driver}")


def _hardware_block(fields: dict[str, Field]) -> Block:
    return Block(BlockKind.CODE, f"CPU: {_said(fields['cpu'])}\nGPU: {_said(fields['gpus'])}")


def _models_block(seen: Observed, fields: dict[str, Field]) -> Block:
    model = seen.model
    facts = [_said(fields["gguf"])]
    if model is not None:
        kind = f" {model.file_type}" if model.file_type else ""
        facts.append(f"{model.architecture}{kind}, {model.n_layer} layers, trained context {model.n_ctx_train}")
    elif architecture := seen.facts.metadata.get("general.architecture"):
        facts.append(architecture)
    return Block(BlockKind.CODE, ", ".join(facts) + f"\nrepository and revision: {_said(fields['model_source'])}")


def _problem_blocks(seen: Observed, fields: dict[str, Field]) -> tuple[Block, ...]:
    blocks = [_command_block(seen, fields["command"])]
    if seen.diagnosis is not None and seen.diagnosis.summary:
        blocks.append(Block(BlockKind.PROSE, seen.diagnosis.summary))
    elif seen.run is not None and seen.run.says:
        blocks.append(Block(BlockKind.PROSE, seen.run.says))
    if others := _other_processes(seen):
        blocks.append(Block(BlockKind.PROSE, others))
    wanted = ("n_ctx", "n_parallel", "cache_type_k", "cache_type_v", "n_gpu_layers", "split", "free_memory")
    width = max(len(fields[name].label) for name in wanted) + 1
    table = "\n".join(f"{fields[name].label + ':':<{width}} {_said(fields[name])}" for name in wanted)
    return (*blocks, Block(BlockKind.CODE, table))


def _command_block(seen: Observed, field: Field) -> Block:
    typed = exact_command(seen)
    if typed is None:
        return _fact(field)
    ran = ran_command(seen)
    return Block(BlockKind.CODE, typed if ran is None or ran == typed else f"{typed}\n# started as\n{ran}")


def _other_processes(seen: Observed) -> str:
    """Who else held memory of the devices, from the process list."""
    held = []
    for device in devices(seen):
        for process in device.processes:
            if process.bytes:
                owner = f" of {process.user}" if process.user else ""
                held.append(f"{process.name} ({process.pid}){owner} held {mib(process.bytes)} on {device.name}")
    return f"Before the launch {', '.join(held)}." if held else ""


def _key_section(seen: Observed) -> tuple[Section, ...]:
    key = seen.diagnosis.key_line if seen.diagnosis else None
    if key is not None:
        return (Section("Key line", (Block(BlockKind.KEY, f"{key.number}: {key.text}"),)),)
    if seen.diagnosis is None or seen.diagnosis.outcome is Outcome.OK:
        return ()
    missing = " ".join(seen.diagnosis.missing) or "The line that decided is not in the log."
    return (Section("Key line", (Block(BlockKind.MISSING, missing),)),)


def _known_good_block(field: Field) -> Block:
    if field.value is not None:
        return Block(BlockKind.CODE, field.value)
    return Block(BlockKind.MISSING, "Not collected. Run the same command with an older build, then compare the two.")
