"""The dry run's table beside a budget, with its known differences from a real load taken out or named."""

from dataclasses import replace

from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.oracle.values import FIT_PROGRAM, HOST, KINDS, STEP_BYTES, Measured, OracleRow
from kvstudio.units import format_mib

#: Bytes of one activation, which is f32 between layers.
_F32 = 4
_MAIN = "main"
#: Columns of the table by what they hold.
_TABLE_KINDS = {
    "model": (BufferKind.MODEL,),
    "context": (BufferKind.KV, BufferKind.RS),
    "compute": (BufferKind.COMPUTE,),
}


def rows_beside(
    measured: tuple[Measured, ...], budget: Budget | None, n_embd: int | None, method: str
) -> tuple[OracleRow, ...]:
    """One row per device and kind, then the host's, estimate beside measurement."""
    devices = [row for row in measured if row.is_device]
    rows = []
    for position, row in enumerate(devices):
        place = _place(budget, row.name)
        for kind in KINDS:
            rows.append(_device_row(row, kind, place, position, len(devices), budget, n_embd))
    rows += _host_rows([row for row in measured if not row.is_device], budget)
    return tuple(_of_fit_program(row) for row in rows) if method == FIT_PROGRAM else tuple(rows)


def _of_fit_program(row: OracleRow) -> OracleRow:
    """llama-fit-params reserves logits for every token of a batch, where a server needs one row per slot.

    What a server needs cannot be told from its compute figures, only that it is not more. It also leaves out weights
    that are repacked for the CPU.
    """
    if row.kind == "compute":
        high = (row.measured or 0) + row.slack
        note = f"at most {format_mib(high)}: llama-fit-params counts the output of a whole batch"
        return replace(row, measured=None, slack=0, note=note)
    if row.kind == "model" and row.device == HOST:
        return replace(row, measured=None, slack=0, note="llama-fit-params leaves out repacked weights")
    return row


def _place(budget: Budget | None, name: str) -> DeviceBudget | None:
    """The budget's device of that name; a table may say `RPC0` where the device list says `RPC0[host:port]`."""
    for place in budget.devices if budget else ():
        if place.name == name or place.name.partition("[")[0] == name.partition("[")[0]:
            return place
    return None


def _device_row(
    row: Measured,
    kind: str,
    place: DeviceBudget | None,
    position: int,
    n_devices: int,
    budget: Budget | None,
    n_embd: int | None,
) -> OracleRow:
    value: int = getattr(row, kind)
    estimated = _estimated(budget, place, kind)
    if kind != "compute":
        return OracleRow(row.name, kind, value, STEP_BYTES - 1, estimated)
    if n_devices > 1:
        return _shared_compute(row, estimated, position, budget, n_embd)
    return OracleRow(row.name, kind, value, STEP_BYTES - 1, estimated)


def _shared_compute(
    row: Measured, estimated: int | None, position: int, budget: Budget | None, n_embd: int | None
) -> OracleRow:
    """A compute buffer of one device among several.

    The dry run measures a first graph, in which the scheduler still counts the activation that crosses to a device, in
    all its pipeline copies; a real load reserves again and has it overlap with other memory. So the real size lies
    between the printed one less those copies and the printed one (98 of 100 of 1217 second devices measured at build
    10434 and 11434; the others are models whose devices share more than the activation). Without pipeline copies the
    two differ by up to two activations in either direction (96 of 100).
    """
    copies = budget.config.pipeline_copies if budget else 1
    crossing = copies * _F32 * (n_embd or 0) * (_batch_tokens(budget) if budget else 0)
    if position == 0 and copies > 1:
        return OracleRow(row.name, "compute", row.compute, STEP_BYTES - 1, estimated)
    if copies > 1:
        low = max(0, row.compute - crossing)
        note = "the dry run may count the activation between devices once more than a real load"
        return OracleRow(row.name, "compute", low, row.compute - low + STEP_BYTES - 1, estimated, note)
    if budget is not None and budget.offloaded_layers[0] == budget.offloaded_layers[1] and position > 0:
        low = max(0, row.compute - 2 * crossing)
        note = "the dry run's figure for a second device can differ from a real load by some activations"
        return OracleRow(row.name, "compute", low, row.compute - low + 2 * crossing + STEP_BYTES - 1, estimated, note)
    return OracleRow(row.name, "compute", row.compute, STEP_BYTES - 1, estimated)


def _batch_tokens(budget: Budget) -> int:
    """Tokens of the batch that is reserved for: full, and as many for each slot."""
    slots = max(1, budget.config.n_parallel)
    return -(-budget.config.n_ubatch // slots) * slots


def _host_rows(host: list[Measured], budget: Budget | None) -> tuple[OracleRow, ...]:
    """All host memory together: `Host` and the rows of buffer types that are no device (repacked weights)."""
    if not host:
        return ()
    slack = len(host) * STEP_BYTES - 1
    place = budget.host if budget else None
    model, context, compute = (
        OracleRow(HOST, kind, sum(getattr(row, kind) for row in host), slack, _estimated(budget, place, kind))
        for kind in KINDS
    )
    return (_mapped(model, host, budget), context, compute)


def _mapped(row: OracleRow, host: list[Measured], budget: Budget | None) -> OracleRow:
    """The dry run does not map the file; a real load maps the range from the host's first tensor to its last.

    So where the rest of the host's weights agrees, the mapped part may be larger by whatever lies in between.
    """
    weights = (
        [b for b in budget.buffers if b.device is None and b.kind is BufferKind.MODEL and b.context == _MAIN]
        if budget
        else []
    )
    mapped = sum(b.bytes or 0 for b in weights if b.name.endswith("_Mapped"))
    if not mapped:
        return row
    other = sum(b.bytes or 0 for b in weights if not b.name.endswith("_Mapped"))
    other_measured = sum(m.model for m in host if m.name != HOST)
    own = sum(m.model for m in host if m.name == HOST)
    note = "the dry run does not map the file; a real launch maps the whole range of the host's tensors"
    if not other_measured <= other <= other_measured + row.slack:
        return replace(row, note=note)
    if mapped < own:
        # Tensors that serve twice are counted twice without mapping, and lie in the file once.
        return replace(row, measured=None, slack=0, note=note)
    return replace(row, slack=max(row.slack, mapped - own + row.slack), note=note)


def _estimated(budget: Budget | None, place: DeviceBudget | None, kind: str) -> int | None:
    """The main context's bytes: llama.cpp's table holds no draft model, projector or adapter."""
    if budget is None or place is None:
        return None
    device = None if place is budget.host else place.name
    kinds = _TABLE_KINDS[kind]
    mine = (b for b in budget.buffers if b.device == device and b.context == _MAIN and b.kind in kinds)
    return sum(buffer.bytes or 0 for buffer in mine)
