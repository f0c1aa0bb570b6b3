"""The run area without a run: what belongs there, or whose log it is that is shown."""

from pathlib import PurePath

from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step, Weight
from kvstudio.ui.widgets.basic import (
    Card,
    ElidedLabel,
    Icon,
    Label,
    SectionLabel,
    Surface,
    icon_button,
    push_button,
    show,
)


class SourceBar(Surface):
    """In place of the strip: whose log this is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setFixedHeight(Size.STRIP)
        self._name = ElidedLabel(weight=Weight.DemiBold, step=Step.SMALL)
        self._name.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        row = QHBoxLayout(self)
        row.setContentsMargins(Space.L, 0, Space.L, 0)
        row.setSpacing(Space.S)
        row.addWidget(Icon("file", "muted"))
        row.addWidget(self._name)
        row.addWidget(Label(tr("Opened log, nothing was run"), Step.SMALL, role="muted"))
        row.addStretch(1)

    def show_source(self, source: str) -> None:
        """The log's file."""
        self._name.setText(PurePath(source).name if source else tr("Pasted log"))
        self._name.setToolTip("")


class IdlePage(Surface):
    """What belongs here, what makes it appear, and the buttons for it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent=parent)
        self.setObjectName("runIdle")
        self._head = QWidget()
        head = QHBoxLayout(self._head)
        head.setContentsMargins(0, 0, 0, 0)
        head.setSpacing(Space.XS + 2)
        self.toggle = icon_button("chevron-right", tr("Show the run area"), name="unfoldRun")
        self.toggle.hide()
        self._none = Label(tr("none yet"), Step.SMALL, role="muted")
        self._none.hide()
        head.addWidget(self.toggle)
        head.addWidget(SectionLabel(tr("Run")))
        head.addWidget(self._none)
        head.addStretch(1)
        head.addWidget(Label(tr("Drop a log anywhere to have it explained"), Step.SMALL, role="muted"))
        self._card = Card()
        self._icon = Icon("play", "muted", 20)
        title = Label(tr("No run yet"), weight=Weight.DemiBold)
        self._text = Label("", Step.SMALL, role="muted", wrap=True)
        self.open_button = push_button(tr("Open a log…"), "open", name="openLog")
        self.launch_button = push_button(tr("Test launch"), "play", name="launchHere")
        self._text.setFixedWidth(500)
        for button in (self.open_button, self.launch_button):
            button.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        words = QVBoxLayout()
        words.setSpacing(Space.XS)
        words.addStretch(1)
        words.addWidget(title)
        words.addWidget(self._text)
        words.addStretch(1)
        self._row = QHBoxLayout(self._card)
        self._row.setContentsMargins(28, 0, Space.XXL, 0)
        self._row.setSpacing(Space.L)
        self._row.addWidget(self._icon)
        self._row.addLayout(words, 1)
        self._row.addStretch(1)
        self._row.addWidget(self.open_button)
        self._row.setSpacing(Space.S)
        self._row.addWidget(self.launch_button)
        self._row.insertSpacing(1, Space.S)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(Space.L, 10, Space.L, Space.L)
        self._layout.setSpacing(6)
        self._layout.addWidget(self._head)
        self._layout.addWidget(self._card, 1)
        self.show_ready(True, "")

    def show_ready(self, can_launch: bool, why_not: str) -> None:
        """Whether a launch may be asked for, and what it does or why it may not."""
        what = tr(
            "Test launch starts llama-server with these settings on a free port, watches the "
            "memory of each device, sends one prompt and stops it again."
        )
        self._text.setText(why_not or what)
        self.launch_button.setEnabled(can_launch)
        self.launch_button.setToolTip(why_not)

    def fold(self, folded: bool) -> None:
        """The heading only, with a chevron that opens the rest."""
        for part, shown in ((self._card, not folded), (self._none, folded), (self.toggle, folded)):
            show(part, shown)
        left = Space.XS + 2 if folded else Space.L
        self._layout.setContentsMargins(left, 0 if folded else 10, Space.L, 0 if folded else Space.L)
