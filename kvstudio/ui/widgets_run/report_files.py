"""What the zip of a report will hold."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.ui.text import tr
from kvstudio.ui.theme import Space, Step, Weight
from kvstudio.ui.widgets.basic import ElidedLabel, Icon, Label, Rule, SectionLabel, Surface
from kvstudio.units import format_bytes


class FileList(Surface):
    """What the zip will hold."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(canvas=True, parent=parent)
        self.files: tuple[tuple[str, bytes], ...] = ()
        self._column = QVBoxLayout()
        self._column.setSpacing(0)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.CANVAS_MARGIN, Space.L, Space.CANVAS_MARGIN, Space.CANVAS_MARGIN)
        layout.setSpacing(Space.S)
        layout.addWidget(SectionLabel(tr("In the zip, all redacted as listed")))
        layout.addLayout(self._column)
        layout.addStretch(1)

    def show_files(self, files: tuple[tuple[str, bytes], ...]) -> None:
        """Names, what they are, and sizes."""
        self.files = files
        while (item := self._column.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for name, data in files:
            self._column.addWidget(_file_row(name, len(data)))
            self._column.addWidget(Rule())


def _file_row(name: str, size: int) -> QWidget:
    words = {
        "report.md": tr("the report for an upstream issue"),
        "report.txt": tr("the report as plain text"),
        "report.json": tr("fields and redactions, for scripts"),
        "environment.txt": tr("machine, binary and variables"),
        "llama.log": tr("the whole log"),
        "case.json": tr("the case: model, devices, settings, runs"),
        "chart.png": tr("picture of the memory chart"),
    }
    row = QWidget()
    row.setFixedHeight(36)
    line = QHBoxLayout(row)
    line.setContentsMargins(0, 0, 0, 0)
    line.setSpacing(Space.M)
    line.addWidget(Icon("file", "muted"))
    title = Label(name, weight=Weight.Medium)
    title.setFixedWidth(150)
    line.addWidget(title)
    line.addWidget(ElidedLabel(words.get(name, ""), role="muted"), 1)
    line.addWidget(Label(format_bytes(size), Step.SMALL, role="muted"))
    row.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
    row.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
    return row
