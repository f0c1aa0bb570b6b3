"""What the model is: name, file and the few figures that memory depends on."""

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QVBoxLayout, QWidget

from kvstudio.budget.values import Budget
from kvstudio.model.values import ModelInfo
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.basic import ElidedLabel, Label, SectionLabel, plain_tooltip
from kvstudio.units import format_bytes

_ROW_GAP = 4


class ModelPanel(QWidget):
    """Left, above the devices."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("modelPanel")
        self._facts: tuple[tuple[str, str, str], ...] = ()
        self._build()
        self.show_model(None)

    def _build(self) -> None:
        self._name = ElidedLabel(step=Step.TITLE, weight=Weight.DemiBold)
        self._name.setObjectName("modelName")
        self._file = ElidedLabel(step=Step.SMALL, role="muted", mode=Qt.TextElideMode.ElideMiddle)
        self._rows = QGridLayout()
        self._rows.setContentsMargins(0, Space.S - 2, 0, 0)
        self._rows.setVerticalSpacing(_ROW_GAP)
        self._rows.setHorizontalSpacing(Space.S)
        self._rows.setColumnStretch(1, 1)
        self._warning = Label(step=Step.SMALL, role="warn", wrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(SectionLabel(tr("Model")))
        layout.addSpacing(Space.S)
        layout.addWidget(self._name)
        layout.addSpacing(1)
        layout.addWidget(self._file)
        layout.addLayout(self._rows)
        layout.addSpacing(Space.XS)
        layout.addWidget(self._warning)

    def show_model(self, model: ModelInfo | None, budget: Budget | None = None, path: str = "") -> None:
        """Draw the model; `path` names the file when the model itself is not here."""
        if model is None:
            self._show_facts(())
            self._name.setText(tr("No model"))
            self._file.setText(Path(path).name if path else tr("Drop a GGUF file"))
            self._warning.setText(tr("This model file is not on this machine.") if path else "")
            self._warning.setVisible(bool(path))
            return
        self._name.setText(model.name or Path(model.header.path).stem)
        self._file.setText(Path(model.header.path).name)
        self._file.setToolTip(plain_tooltip(model.header.path))
        self._show_facts(facts(model, budget))
        warning = warnings(model)
        self._warning.setText(warning)
        self._warning.setVisible(bool(warning))

    def rows(self) -> tuple[tuple[str, str], ...]:
        """Captions and values on screen, in order."""
        found = []
        for row in range(self._rows.rowCount()):
            items = (self._rows.itemAtPosition(row, 0), self._rows.itemAtPosition(row, 1))
            labels = [item.widget() for item in items if item is not None]
            texts = [label.text() for label in labels if isinstance(label, Label)]
            if len(texts) == 2:
                found.append((texts[0], texts[1]))
        return tuple(found)

    def _show_facts(self, rows: tuple[tuple[str, str, str], ...]) -> None:
        if rows == self._facts:
            return
        self._facts = rows
        self._clear_rows()
        for row, (caption, value, tip) in enumerate(rows):
            self._add_row(row, caption, value, tip)

    def _add_row(self, row: int, caption: str, value: str, tip: str) -> None:
        left = Label(caption, Step.SMALL, role="muted")
        right = ElidedLabel(value, Step.SMALL)
        right.setAlignment(Qt.AlignmentFlag.AlignRight)
        if tip:
            left.setToolTip(plain_tooltip(tip))
        self._rows.addWidget(left, row, 0)
        self._rows.addWidget(right, row, 1)

    def _clear_rows(self) -> None:
        while (item := self._rows.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.hide()
                widget.deleteLater()


def facts(model: ModelInfo, budget: Budget | None) -> tuple[tuple[str, str, str], ...]:
    """Caption, value and tooltip of each row that applies to this model."""
    rows = [
        (tr("Architecture"), model.architecture, ""),
        (tr("File size"), format_bytes(model.size_bytes), model.file_type or ""),
    ]
    if model.file_type:
        rows.append((tr("Type"), model.file_type, tr("What general.file_type says; single tensors may differ")))
    if len(model.header.shards) > 1:
        rows.append((tr("Shards"), str(len(model.header.shards)), ""))
    extra = f" + {model.n_layer_nextn} MTP" if model.n_layer_nextn else ""
    rows.append((tr("Layers"), f"{model.n_layer}{extra} + " + tr("output"), ""))
    heads = _heads(model)
    if heads:
        rows.append((tr("Heads"), heads, tr("Query heads, and the KV heads they share")))
    recurrent = sum(layer.is_recurrent for layer in model.layers)
    if recurrent:
        tip = tr("These layers keep a state of fixed size instead of a KV cache")
        rows.append((tr("Recurrent layers"), tr("{} of {}").format(recurrent, model.n_layer_all), tip))
    if model.n_expert:
        rows.append((tr("Experts"), tr("{}, {} used").format(model.n_expert, model.n_expert_used), ""))
    sliding = sum(layer.is_swa for layer in model.layers)
    if model.n_swa and sliding:
        value = tr("{}, {} of {} layers").format(model.n_swa, sliding, model.n_layer_all)
        rows.append((tr("Window"), value, tr("Sliding-window layers remember this many tokens only")))
    per_token = kv_per_token(budget)
    if per_token:
        tip = tr("What one more token of context costs over all devices, with the K and V types chosen")
        rows.append((tr("KV per token"), format_bytes(per_token), tip))
    if model.n_ctx_train:
        rows.append((tr("Trained context"), str(model.n_ctx_train), ""))
    return tuple(rows)


def kv_per_token(budget: Budget | None) -> int:
    """Bytes one more token of context costs: caches that grow with it, by their cells; 0 when none does."""
    if budget is None:
        return 0
    total = 0
    for cache in budget.caches:
        cells = cache.cells * max(1, cache.streams)
        if cells and not cache.kind.startswith("rs") and "swa" not in cache.kind:
            total += (cache.k_bytes + cache.v_bytes) // cells
    return total


def warnings(model: ModelInfo) -> str:
    """What a person must know before believing the figures; empty when all is well."""
    if not model.known_architecture:
        missing = ", ".join(model.missing_keys)
        text = tr("Unknown architecture: every figure is an estimate.")
        return f"{text} {tr('Missing: {}').format(missing)}" if missing else text
    if model.header.missing_shards:
        return tr("{} shards missing").format(len(model.header.missing_shards))
    if model.size_bytes < model.header.need_bytes:
        have, need = format_bytes(model.size_bytes), format_bytes(model.header.need_bytes)
        return tr("Incomplete download: {} of {}").format(have, need)
    return " ".join((*model.header.warnings, *model.notes)[:1])


def _heads(model: ModelInfo) -> str:
    attention = [layer for layer in model.layers if layer.has_kv and layer.n_head]
    if not attention:
        return ""
    query, shared = _span({x.n_head for x in attention}), _span({x.n_head_kv for x in attention})
    return query if query == shared else f"{query}, KV {shared}"


def _span(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)}–{max(values)}"
