"""Small windows: help, about, a defect with a copy button, and the file choosers."""

import platform
import sys
import traceback
from collections.abc import Callable
from types import TracebackType

from PySide6.QtCore import Qt, qVersion
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QFileDialog,
    QGridLayout,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

import kvstudio
from kvstudio.budget.values import Budget, BufferKind, DeviceBudget
from kvstudio.case.store import SUFFIX
from kvstudio.oracle.values import OracleResult
from kvstudio.ui import theme
from kvstudio.ui.text import kind_name, tr
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.basic import Label, SectionLabel, push_button
from kvstudio.units import format_bytes, format_mib

_OPEN_FILTER = "Models, logs and cases (*.gguf *.log *.txt *{});;All files (*)"

SHORTCUTS = (
    ("Ctrl+O", "Open a model, a log, a case or a projector"),
    ("Ctrl+V", "Paste a command line, a log or a path"),
    ("Ctrl+S", "Save the case"),
    ("Ctrl+W", "Close the case"),
    ("Ctrl+Z, Ctrl+Shift+Z", "Undo, redo a change of settings or devices"),
    ("Ctrl+L", "Edit the command"),
    ("Ctrl+Shift+C", "Copy the command"),
    ("F5, Shift+F5", "Test launch, stop it"),
    ("F6", "Check with llama.cpp"),
    ("F8", "Fix…"),
    ("F9", "Report…"),
    ("Ctrl+H", "History: kept runs, two of them side by side"),
    ("F1", "This page"),
)

_WORDS = (
    (
        "Bars",
        "What each device is asked for, in llama.cpp's order; past the tick it does not fit. Point at a part.",
    ),
    (
        "Settings",
        "A dot marks what was typed. At the right stands what llama.cpp makes of it. Empty: the default.",
    ),
    (
        "Test launch",
        "Starts llama-server with these settings on a free port, sends one prompt, then several, and stops it again.",
    ),
    (
        "Check with llama.cpp",
        "Asks the program for its own figures without loading the model, and shows how far the estimate was off.",
    ),
    ("Logs", "Drop a log of llama.cpp, Ollama, LM Studio or koboldcpp: the line that decided is found and explained."),
)


class HelpDialog(QDialog):
    """One page: what the parts say, and the keys."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("kvstudio help"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.XXL, Space.XL, Space.XXL, Space.L)
        layout.setSpacing(Space.S)
        layout.addWidget(Label(tr("What the window says"), Step.TITLE, Weight.DemiBold))
        grid = QGridLayout()
        grid.setHorizontalSpacing(Space.L)
        grid.setVerticalSpacing(Space.S)
        grid.setColumnStretch(1, 1)
        top = Qt.AlignmentFlag.AlignTop
        for row, (name, says) in enumerate(_WORDS):
            grid.addWidget(Label(tr(name), weight=Weight.DemiBold), row, 0, top)
            grid.addWidget(Label(tr(says), role="muted", wrap=True), row, 1, top)
        layout.addLayout(grid)
        layout.addSpacing(Space.S)
        layout.addWidget(SectionLabel(tr("Keys")))
        keys = QGridLayout()
        keys.setHorizontalSpacing(Space.L)
        keys.setVerticalSpacing(Space.XS)
        keys.setColumnStretch(1, 1)
        for row, (key, says) in enumerate(SHORTCUTS):
            keys.addWidget(Label(key, Step.SMALL, mono=True), row, 0)
            keys.addWidget(Label(tr(says), role="muted"), row, 1)
        layout.addLayout(keys)
        layout.addSpacing(Space.S)
        layout.addWidget(Label(about_line(), Step.SMALL, role="muted", wrap=True))
        layout.addWidget(_closing(self))
        self.setMinimumWidth(theme.px(600))


def _closing(dialog: QDialog, *others: QPushButton) -> QDialogButtonBox:
    """The foot of a window that is only read: Close, and what else it offers."""
    buttons = QDialogButtonBox()
    for button in others:
        buttons.addButton(button, QDialogButtonBox.ButtonRole.ActionRole)
    buttons.addButton(push_button(tr("Close"), name="close"), QDialogButtonBox.ButtonRole.RejectRole)
    buttons.rejected.connect(dialog.reject)
    return buttons


def about_line() -> str:
    """Versions, for the foot of the help page and for a defect's text."""
    return tr("kvstudio {}, Qt {}, Python {}, {}. Nothing is sent anywhere.").format(
        kvstudio.__version__, qVersion(), platform.python_version(), platform.system()
    )


class DefectDialog(QDialog):
    """A defect of ours, in full, with a button that copies it."""

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Something unexpected happened"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.XXL, Space.XL, Space.XXL, Space.L)
        layout.addWidget(Label(tr("Something unexpected happened"), Step.TITLE, Weight.DemiBold))
        says = tr(
            "This is a defect of kvstudio. The case on screen is as it was; what was just asked for may not be done."
        )
        layout.addWidget(Label(says, role="muted", wrap=True))
        self.field = QPlainTextEdit(text)
        self.field.setProperty("field", True)
        self.field.setReadOnly(True)
        self.field.setFont(theme.mono(Step.SMALL))
        self.field.setAccessibleName(tr("Details"))
        layout.addWidget(self.field, 1)
        copy = push_button(tr("Copy"), "copy", name="copyDefect")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(text))
        layout.addWidget(_closing(self, copy))
        self.resize(640, 360)


class WhyDialog(QDialog):
    """The allocations of one device in llama.cpp's order, with what is left after each."""

    def __init__(self, budget: Budget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        failure = budget.first_failure
        name = failure.device if failure is not None else (budget.devices[0].name if budget.devices else "Host")
        device = next((d for d in budget.devices if d.name == name), budget.host)
        self.setWindowTitle(tr("Why"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.XXL, Space.XL, Space.XXL, Space.L)
        layout.setSpacing(Space.M)
        layout.addWidget(Label(tr("What llama.cpp asks of {}, in its order").format(name), Step.TITLE, Weight.DemiBold))
        layout.addLayout(_why_grid(why_rows(budget, device)))
        for note in budget.notes:
            layout.addWidget(Label(note, Step.SMALL, role="muted", wrap=True))
        layout.addStretch(1)
        layout.addWidget(_closing(self))
        self.setMinimumWidth(theme.px(720))


def _why_grid(rows: tuple[tuple[str, str, str, str], ...]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(Space.XL)
    grid.setVerticalSpacing(Space.XS)
    grid.setColumnStretch(3, 1)
    top, right = Qt.AlignmentFlag.AlignTop, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignTop
    for column, words in enumerate((tr("Buffer"), tr("Asks for"), tr("Left after it"), tr("Because"))):
        grid.addWidget(SectionLabel(words), 0, column, right if column in (1, 2) else top)
    for row, cells in enumerate(rows, 1):
        short = cells[2].startswith("-")
        for column, words in enumerate(cells):
            role = "bad" if short and column == 2 else ("muted" if column == 3 else "ink")
            label = Label(tr("{} short").format(words[1:]) if short and column == 2 else words, role=role)
            label.setWordWrap(column == 3)
            label.setAlignment(right if column in (1, 2) else top)
            grid.addWidget(label, row, column)
    return grid


class CheckDialog(QDialog):
    """What llama.cpp's own dry run said beside the estimate; only what differs stands out."""

    def __init__(self, result: OracleResult, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Check with llama.cpp"))
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.XXL, Space.XL, Space.XXL, Space.L)
        layout.setSpacing(Space.M)
        self.says = Label(result.says, Step.TITLE, Weight.DemiBold, wrap=True)
        layout.addWidget(self.says)
        layout.addLayout(_check_grid(check_rows(result)))
        for note in result.notes:
            layout.addWidget(Label(note[:1].upper() + note[1:], Step.SMALL, role="muted", wrap=True))
        layout.addStretch(1)
        layout.addWidget(_closing(self))
        self.setMinimumWidth(theme.px(640))


def _check_grid(rows: tuple[tuple[tuple[str, ...], bool], ...]) -> QGridLayout:
    grid = QGridLayout()
    grid.setHorizontalSpacing(Space.XXL)
    grid.setVerticalSpacing(Space.XS)
    grid.setColumnStretch(5, 1)
    top = Qt.AlignmentFlag.AlignTop
    right = Qt.AlignmentFlag.AlignRight | top
    for column, words in enumerate((tr("Device"), tr("Memory"), tr("Estimate"), tr("llama.cpp"), tr("Difference"), "")):
        grid.addWidget(SectionLabel(words), 0, column, right if column in (2, 3, 4) else top)
    for row, (cells, differs) in enumerate(rows, 1):
        for column, words in enumerate(cells):
            is_note = column == 5
            role = ("ink" if differs else "muted") if column >= 4 else "ink"
            label = Label(words[:1].upper() + words[1:] if is_note else words, role=role, wrap=is_note)
            label.setAlignment(right if column in (2, 3, 4) else top)
            grid.addWidget(label, row, column)
    return grid


def check_rows(result: OracleResult) -> tuple[tuple[tuple[str, ...], bool], ...]:
    """Cells of each row, and whether it differs."""
    rows = []
    for row in result.rows:
        difference = row.difference
        if difference is None:
            off = ""
        elif difference == 0:
            off = tr("agrees")
        else:
            off = tr("{} high" if difference > 0 else "{} low").format(format_mib(abs(difference)))
        measured = format_mib(row.measured) if row.measured is not None else tr("not told")
        estimated = format_mib(row.estimated) if row.estimated is not None else ""
        rows.append(((row.device, row.kind, estimated, measured, off, row.note), bool(difference)))
    return tuple(rows)


def why_rows(budget: Budget, device: DeviceBudget) -> tuple[tuple[str, str, str, str], ...]:
    """Kind, size, what is left (a minus sign when short) and reason of each allocation on a device."""
    left = device.free_bytes
    rows = [(tr("Free before"), "", _size(left), _held(device))]
    if device.overhead_bytes:
        left = None if left is None else left - device.overhead_bytes
        rows.append(
            (kind_name(BufferKind.OVERHEAD), _size(device.overhead_bytes), _size(left), tr("seen in earlier runs"))
        )
    owner = None if device is budget.host else device.name
    for kind in (BufferKind.MODEL, BufferKind.KV, BufferKind.RS, BufferKind.COMPUTE, BufferKind.OUTPUT):
        for buffer in budget.buffers:
            if buffer.device == owner and buffer.kind is kind:
                left = None if left is None or buffer.bytes is None else left - buffer.bytes
                rows.append((kind_name(kind), _size(buffer.bytes), _size(left), buffer.why))
    return tuple(rows)


def _size(n_bytes: int | None) -> str:
    return tr("unknown") if n_bytes is None else format_bytes(n_bytes)


def _held(device: DeviceBudget) -> str:
    if device.total_bytes is None or device.other_bytes is None:
        return ""
    return tr("{} in all, others hold {}").format(format_bytes(device.total_bytes), format_bytes(device.other_bytes))


class ChooseDialog(QDialog):
    """One of several files of a folder."""

    def __init__(self, title: str, rows: tuple[tuple[str, str], ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L, Space.L, Space.L, Space.L)
        layout.addWidget(Label(title, Step.TITLE, Weight.DemiBold))
        self.list = QListWidget()
        for path, words in rows:
            item = QListWidgetItem(words)
            item.setData(Qt.ItemDataRole.UserRole, path)
            self.list.addItem(item)
        self.list.setCurrentRow(0)
        self.list.itemActivated.connect(lambda _: self.accept())
        layout.addWidget(self.list, 1)
        buttons = QDialogButtonBox()
        buttons.addButton(push_button(tr("Cancel")), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.addButton(push_button(tr("Open"), "open", primary=True), QDialogButtonBox.ButtonRole.AcceptRole)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        layout.addWidget(buttons)
        self.resize(560, 320)

    def chosen(self) -> str:
        """Path of the row that is selected; empty when none is."""
        item = self.list.currentItem()
        return str(item.data(Qt.ItemDataRole.UserRole)) if item is not None else ""


def ask_open(parent: QWidget, done: Callable[[tuple[str, ...]], None]) -> QFileDialog:
    """Ask for files without blocking; `done` gets their paths."""
    dialog = QFileDialog(parent, tr("Open"), "", _OPEN_FILTER.format(SUFFIX))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
    dialog.filesSelected.connect(lambda paths: done(tuple(paths)))
    return _opened(dialog)


def ask_save(parent: QWidget, name: str, done: Callable[[str], None]) -> QFileDialog:
    """Ask where to save a case."""
    dialog = QFileDialog(parent, tr("Save case"), name, f"Case (*{SUFFIX})")
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setDefaultSuffix(SUFFIX.removeprefix("."))
    dialog.fileSelected.connect(done)
    return _opened(dialog)


def ask_binary(parent: QWidget, done: Callable[[str], None]) -> QFileDialog:
    """Ask for a llama.cpp program."""
    dialog = QFileDialog(parent, tr("Choose llama-server"))
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.fileSelected.connect(done)
    return _opened(dialog)


def _opened(dialog: QFileDialog) -> QFileDialog:
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.open()
    return dialog


def install_excepthook(parent: Callable[[], QWidget | None]) -> None:
    """Show what nobody caught in a dialog, and still write it to stderr."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(text)
        if issubclass(kind, KeyboardInterrupt):
            QGuiApplication.quit()
            return
        dialog = DefectDialog(f"{about_line()}\n\n{text}", parent())
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    sys.excepthook = hook
