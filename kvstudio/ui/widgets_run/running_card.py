"""A launch under way: what it does now, how much each device holds, and a way to stop it."""

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from kvstudio.ui import colours, theme
from kvstudio.ui.text import device_names, tr
from kvstudio.ui.theme import Size, Space, Step, Theme, Weight
from kvstudio.ui.widgets.basic import Label, Rule, SectionLabel, Surface, push_button
from kvstudio.units import format_gib
from kvstudio.verify.values import MemorySample

_TRACE_ROW = 46
_PLOT = 26
_MAX_POINTS = 600
#: While nothing changes the traces only grow to the right: drawing that once a second is enough.
_STILL_S = 1.0


class MemoryTrace(QWidget):
    """Used memory of each device since the start, each against its own total."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("memoryTrace")
        self._points: dict[str, list[tuple[float, int]]] = {}
        self._totals: dict[str, int] = {}
        self._said, self._painted_s = "", 0.0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)

    def start(self, totals: dict[str, int]) -> None:
        """Begin anew; `totals` in bytes, of the devices that have a known one."""
        self._points, self._totals = {}, totals
        self._said, self._painted_s = "", 0.0
        self.updateGeometry()
        self.update()

    def add(self, sample: MemorySample) -> None:
        """One more moment."""
        rows = len(self._points)
        for name, used in sample.used_bytes:
            points = self._points.setdefault(name, [])
            points.append((sample.time_s, used))
            if len(points) > _MAX_POINTS:
                del points[1:-1:2]
        said = ", ".join(f"{n} {format_gib(p[-1][1])} GiB" for n, p in self._points.items())
        if said != self.accessibleName():
            self.setAccessibleName(said)
        if len(self._points) != rows:
            # A layout of the whole card, four times a second, would cost more than the launch's watching.
            self.updateGeometry()
        if said != self._said or sample.time_s - self._painted_s >= _STILL_S:
            self._said, self._painted_s = said, sample.time_s
            self.update()

    def peaks(self) -> dict[str, int]:
        """The most each device held."""
        return {name: max(used for _, used in points) for name, points in self._points.items()}

    def sizeHint(self) -> QSize:
        return QSize(200, _TRACE_ROW * max(1, len(self._points)))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        longest = max((points[-1][0] for points in self._points.values()), default=0.0)
        names = device_names(self._points)
        for i, (name, points) in enumerate(self._points.items()):
            total = self._totals.get(name)
            self._paint_device(painter, i * _TRACE_ROW, names[name], points, total, max(longest, 1.0))

    def _paint_device(
        self, painter: QPainter, y: int, name: str, points: list[tuple[float, int]], total: int | None, longest: float
    ) -> None:
        current = Theme.current()
        used = points[-1][1]
        painter.setFont(theme.font(Step.SMALL, Weight.DemiBold))
        painter.setPen(current.ink)
        painter.drawText(QRect(0, y, self.width(), 16), Qt.AlignmentFlag.AlignLeft, name)
        said = f"{format_gib(used)} / {format_gib(total)} GiB" if total else f"{format_gib(used)} GiB"
        painter.setFont(theme.font(Step.SMALL))
        width = QFontMetrics(painter.font()).horizontalAdvance(said)
        painter.drawText(QRect(self.width() - width, y, width + 1, 16), Qt.AlignmentFlag.AlignLeft, said)
        plot = QRectF(0.5, y + 17.5, self.width() - 1, _PLOT - 3)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(current.track)
        painter.drawRect(plot)
        scale = total or max(value for _, value in points) or 1
        line = QPainterPath()
        for i, (at, value) in enumerate(points):
            where = QPointF(
                plot.left() + plot.width() * at / longest, plot.bottom() - plot.height() * min(1.0, value / scale)
            )
            line.lineTo(where) if i else line.moveTo(where)
        path = QPainterPath(line)
        path.lineTo(path.currentPosition().x(), plot.bottom())
        path.lineTo(plot.left() + plot.width() * points[0][0] / longest, plot.bottom())
        painter.setBrush(colours.with_alpha(current.accent_fill, 0.22))
        painter.drawPath(path)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(current.accent_text, 1.5))
        painter.drawPath(line)


class RunningCard(Surface):
    """Beside the log while a launch runs."""

    cancel_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(canvas=True, parent=parent)
        self.setObjectName("runningCard")
        self.setFixedWidth(Size.DIAGNOSIS)
        self._title = Label(step=Step.TITLE, weight=Weight.DemiBold, wrap=True)
        self._says = Label(wrap=True)
        self.trace = MemoryTrace()
        self._trace_title = SectionLabel(tr("Memory in use"))
        self.cancel_button = push_button(tr("Cancel"), "stop", name="cancelRun")
        self.cancel_button.clicked.connect(self._on_cancel)
        foot = QHBoxLayout()
        foot.addWidget(self.cancel_button)
        foot.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(Space.L, 14, Space.L, Space.M)
        layout.setSpacing(0)
        layout.addWidget(SectionLabel(tr("Test launch")))
        layout.addSpacing(Space.S)
        layout.addWidget(self._title)
        layout.addSpacing(Space.XS)
        layout.addWidget(self._says)
        layout.addSpacing(Space.M)
        layout.addWidget(self._trace_title)
        layout.addSpacing(Space.XS)
        layout.addWidget(self.trace)
        layout.addStretch(1)
        layout.addWidget(Rule())
        layout.addSpacing(Space.M)
        layout.addLayout(foot)

    def start(self, title: str, totals: dict[str, int]) -> None:
        """A launch begins."""
        self._title.setText(title)
        self._says.setText(tr("Starting"))
        self.trace.start(totals)
        self._trace_title.setVisible(False)
        self.cancel_button.setEnabled(True)
        self.cancel_button.setText(tr("Cancel"))

    def show_now(self, says: str) -> None:
        """What it does now."""
        self._says.setText(says)

    def add_sample(self, sample: MemorySample) -> None:
        """Memory at one moment."""
        self._trace_title.setVisible(True)
        self.trace.add(sample)

    def _on_cancel(self) -> None:
        self.cancel_button.setEnabled(False)
        self.cancel_button.setText(tr("Cancelling"))
        self.cancel_requested.emit()
