"""The dry run's table beside a budget, with its known differences from a real load taken out or named."""

from kvstudio.budget.values import Budget, DeviceBudget
from kvstudio.oracle.values import HOST, KINDS, STEP_BYTES, Measured, OracleRow

#: Bytes of one activation, which is f32 between layers.
_F32 = 4


def rows_beside(
    measured: tuple[Measured, ...], budget: Budget | None, n_embd: int | None, method: str
) -> tuple[OracleRow, ...]:
    """One row per device and kind, then the host's, estimate beside measurement."""
    devices = [row for row in measured if row.is_device]
    rows = []
    for position, row in enumerate(devices):
        place = _place(budget, row.name)
        for kind in KINDS:
            rows.append(_device_row(row, kind, place, position, len(devices), budget, n_embd, method))
    return (*rows, *_host_rows([row for row in measured if not row.is_device], budget, method))


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
    method: str,
) -> OracleRow:
    value: int = getattr(row, kind)
    estimated = _estimated(place, kind)
    if kind != "compute":
        return OracleRow(row.name, kind, value, STEP_BYTES - 1, estimated)
    if method == "llama-fit-params":
        # It reserves logits for every token of a batch, where a server needs one row per slot.
        note = "llama-fit-params counts the output of a whole batch, a server only one row per slot"
        return OracleRow(row.name, kind, value, STEP_BYTES - 1, estimated, note) if n_devices == 1 else OracleRow(
            row.name, kind, None, 0, estimated, note
        )  # fmt: skip
    if n_devices > 1:
        return _shared_compute(row, estimated, position, budget, n_embd)
    return OracleRow(row.name, kind, value, STEP_BYTES - 1, estimated)


def _shared_compute(
    row: Measured, estimated: int | None, position: int, budget: Budget | None, n_embd: int | None
) -> OracleRow:
    """A compute buffer of one device among several.

    The dry run measures a first graph, in which the scheduler still counts the activation that crosses to a device, in
    all its pipeline copies; a real load reserves again and has it overlap with other memory. So the real size lies
    between the printed one less those copies and the printed one. Without pipeline copies the two differ by up to a
    few activations in either direction.
    """
    copies = budget.config.pipeline_copies if budget else 1
    crossing = copies * _F32 * (n_embd or 0) * (budget.config.n_ubatch if budget else 0)
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


def _host_rows(host: list[Measured], budget: Budget | None, method: str) -> tuple[OracleRow, ...]:
    """All host memory together: `Host` and the rows of buffer types that are no device (repacked weights)."""
    if not host:
        return ()
    place = budget.host if budget else None
    slack = len(host) * STEP_BYTES - 1
    mapped = any(b.name.endswith("_Mapped") for b in budget.buffers) if budget else False
    rows = []
    for kind in KINDS:
        total = sum(getattr(row, kind) for row in host)
        note, value = "", total
        if kind == "model" and mapped:
            note = "the dry run does not map the file; a real launch maps the whole range of the host's tensors"
            if place is not None and place.model_bytes > total:
                # The range is counted from its first tensor to its last, whatever lies between: only a lower bound.
                slack_here = place.model_bytes - total
                rows.append(OracleRow(HOST, kind, total, max(slack, slack_here), place.model_bytes, note))
                continue
        if kind == "model" and method == "llama-fit-params":
            note, value = "llama-fit-params leaves out repacked weights", total
        rows.append(OracleRow(HOST, kind, value, slack, _estimated(place, kind), note))
    return tuple(rows)


def _estimated(place: DeviceBudget | None, kind: str) -> int | None:
    if place is None:
        return None
    return {
        "model": place.model_bytes,
        "context": place.kv_bytes + place.rs_bytes,
        "compute": place.compute_bytes,
    }[kind]
