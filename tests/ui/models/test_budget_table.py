"""The table carries the numbers of the bars, one line per buffer."""

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt

from kvstudio.budget.values import BufferKind
from kvstudio.ui.models import budget_table
from kvstudio.ui.models.budget_table import BudgetTableModel, rows_of
from kvstudio.ui.widgets.quiet_table import QuietTable
from tests.ui import samples


@pytest.fixture
def model(qapp):
    made = BudgetTableModel()
    made.show_budget(samples.FAILS)
    return made


def cell(model, row, column, role=Qt.ItemDataRole.DisplayRole):
    return model.index(row, column).data(role)


def test_the_model_keeps_the_rules_of_item_models(qtmodeltester, model):
    qtmodeltester.check(model)


def test_sums_are_the_sums_of_the_lines(model):
    for name in ("CUDA0", "CUDA1", "Host"):
        mine = [row for row in model.rows() if row.device == name]
        parts, total = mine[:-1], mine[-1]
        assert total.kind is None
        assert sum(row.bytes for row in parts) == pytest.approx(total.bytes, abs=2)


def test_sizes_are_written_as_the_log_writes_them(model):
    kv = next(i for i, r in enumerate(model.rows()) if r.device == "CUDA1" and r.kind is BufferKind.KV)
    assert cell(model, kv, budget_table.MIB_COLUMN) == "7936.0"
    assert cell(model, kv, budget_table.MEMORY) == "KV cache"
    assert cell(model, kv, budget_table.SOURCE) == "exact"
    tip = cell(model, kv, 0, Qt.ItemDataRole.ToolTipRole)
    assert "8\u202f321\u202f499\u202f136 bytes" in tip
    assert "31 layers" in tip


def test_a_device_is_named_once_and_its_room_is_said(model):
    assert [cell(model, i, 0) for i in range(model.rowCount()) if cell(model, i, 0)] == ["CUDA0", "CUDA1", "Host"]
    sums = [row.source for row in model.rows() if row.kind is None]
    assert sums[:2] == ["of 24.0 GiB, 5.5 GiB free", "of 24.0 GiB, 1.3 GiB over"]


def test_new_figures_for_the_same_rows_keep_the_rows(qtbot, model):
    with qtbot.waitSignal(model.dataChanged), qtbot.assertNotEmitted(model.modelReset):
        model.show_budget(samples.FITS)
    with qtbot.waitSignal(model.modelReset):
        model.show_budget(None)
    assert model.rowCount() == 0


def test_an_unknown_size_is_a_dash(qapp):
    odd = replace(samples.FITS, buffers=(replace(samples.FITS.buffers[0], bytes=None),))
    row = next(r for r in rows_of(odd) if r.buffer == "CPU_Mapped")
    assert row.bytes is None
    model = BudgetTableModel()
    model.show_budget(odd)
    assert cell(model, model.rows().index(row), budget_table.MIB_COLUMN) == "–"


def test_selected_rows_can_be_copied(qtbot, model):
    table = QuietTable()
    qtbot.addWidget(table)
    table.setModel(model)
    table.selectRow(0)
    qtbot.keyClick(table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert table.selected_text().split("\t")[:2] == ["CUDA0", "Other processes"]
