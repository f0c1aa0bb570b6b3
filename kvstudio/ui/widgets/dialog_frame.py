"""The frame of a large dialog: what there is at the left, one of it at the right, what can be done at the foot."""

from PySide6.QtWidgets import QDialog, QHBoxLayout, QVBoxLayout, QWidget

from kvstudio.ui.widgets.basic import Rule


def fill(dialog: QDialog, side: QWidget, page: QWidget, foot: QWidget) -> None:
    """Lay them out with hairlines in between; the page takes the room."""
    body = QHBoxLayout()
    body.setSpacing(0)
    body.addWidget(side)
    body.addWidget(Rule(vertical=True))
    body.addWidget(page, 1)
    column = QVBoxLayout(dialog)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(0)
    column.addLayout(body, 1)
    column.addWidget(Rule())
    column.addWidget(foot)
