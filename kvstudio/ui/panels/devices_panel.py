"""Which devices are used, what is free on them and who else is there; devices that are not there can be added."""

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLineEdit, QSizePolicy, QToolButton, QVBoxLayout, QWidget

from kvstudio.devices.values import Device, DeviceProcess, DeviceSource, Machine
from kvstudio.errors import KvStudioError
from kvstudio.ui import icons
from kvstudio.ui.text import said, tr
from kvstudio.ui.theme import Size, Space, Step, Weight
from kvstudio.ui.widgets.basic import ElidedLabel, Label, SectionLabel, icon_button, plain_tooltip, tab_inside
from kvstudio.units import GIB, format_bytes, format_gib

_INDENT = 24
_NOISE = ("NVIDIA GeForce ", "NVIDIA ", "AMD Radeon ", "Intel(R) ", "(TM)", "(R)")


class DevicesPanel(QWidget):
    """Signals: `ticked` (name, on), `what_if_added` (tuple of Device), `what_if_removed` (name).

    `rpc_added` carries `host:port` addresses, `rpc_removed` the name of a remote device.
    """

    ticked = Signal(object, object)
    what_if_added = Signal(object)
    what_if_removed = Signal(object)
    rpc_added = Signal(object)
    rpc_removed = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("devicesPanel")
        self._rows: dict[str, _DeviceRow] = {}
        self._build()

    def _build(self) -> None:
        self._live = Label("", Step.SMALL, role="muted")
        header = QHBoxLayout()
        header.addWidget(SectionLabel(tr("Devices")))
        header.addStretch(1)
        header.addWidget(self._live)
        self._list = QVBoxLayout()
        self._list.setSpacing(Space.S)
        self._list.setContentsMargins(0, 0, 0, 0)
        self._none = Label(tr("No GPU was found: everything stays in RAM."), Step.SMALL, role="muted", wrap=True)
        self._host = _DeviceRow("Host", None)
        self._add = _add_button(tr("Add what-if device…"), "addWhatIf")
        self._add.clicked.connect(self.begin_what_if)
        self._editor = _LineEditor("whatIf", tr("What-if device"), "2 x 24 GiB", _read_what_if)
        self._editor.accepted.connect(self._on_added)
        self._editor.cancelled.connect(self._end_what_if)
        self._add_rpc = _add_button(tr("Add RPC servers…"), "addRpc")
        self._add_rpc.setToolTip(tr("Devices of other machines that run ggml-rpc-server"))
        self._add_rpc.clicked.connect(self.begin_rpc)
        self._rpc_editor = _LineEditor("rpcServers", tr("RPC servers"), "192.168.1.20:50052", _read_servers)
        self._rpc_editor.accepted.connect(self._on_rpc)
        self._rpc_editor.cancelled.connect(self._end_rpc)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(header)
        layout.addSpacing(Space.XS + 2)
        layout.addLayout(self._list)
        layout.addWidget(self._none)
        layout.addSpacing(Space.S)
        layout.addWidget(self._host)
        layout.addSpacing(Space.S)
        for button, editor in ((self._add, self._editor), (self._add_rpc, self._rpc_editor)):
            add_row = QHBoxLayout()
            # The cross of the icon stands under the names.
            add_row.setContentsMargins(_INDENT - 10, 0, 0, 0)
            add_row.addWidget(button)
            add_row.addStretch(1)
            layout.addLayout(add_row)
            layout.addWidget(editor)

    def show_devices(self, machine: Machine | None, what_if: tuple[Device, ...], chosen: tuple[str, ...]) -> None:
        """Draw all devices, ticked as chosen; `machine` None while the first probe is under way."""
        hidden = {d.name for d in what_if}
        live = tuple(d for d in machine.devices if d.name not in hidden) if machine else ()
        devices = live + what_if
        self._keep_rows(devices)
        for device in devices:
            self._rows[device.name].show_device(device, device.name in chosen)
        self._none.setVisible(not devices)
        self._none.setText(tr("No GPU was found: everything stays in RAM.") if machine else tr("Looking for devices…"))
        self._host.setVisible(machine is not None)
        if machine is not None:
            self._host.show_device(machine.host, True)
        self._live.setText(tr("live") if machine is not None else "")
        self._live.setToolTip(plain_tooltip("\n".join(machine.notes)) if machine and machine.notes else "")

    def row_texts(self, name: str) -> tuple[str, str]:
        """First and second line of a device's row, as a test or a screen reader sees them."""
        row = self._host if name == "Host" else self._rows[name]
        return row.texts()

    def checkbox(self, name: str) -> QCheckBox:
        """The check box of a device."""
        box = self._rows[name].box
        assert box is not None
        return box

    def begin_what_if(self) -> None:
        """Open the inline editor."""
        self._add.hide()
        self._editor.begin()

    def begin_rpc(self) -> None:
        """Open the inline editor for RPC servers."""
        self._add_rpc.hide()
        self._rpc_editor.begin()

    @property
    def editor(self) -> "_LineEditor":
        return self._editor

    @property
    def rpc_editor(self) -> "_LineEditor":
        return self._rpc_editor

    def _end_rpc(self) -> None:
        self._rpc_editor.hide()
        self._add_rpc.show()
        self._add_rpc.setFocus()

    def _on_rpc(self, servers: object) -> None:
        self._end_rpc()
        self.rpc_added.emit(servers)

    def _end_what_if(self) -> None:
        self._editor.hide()
        self._add.show()
        self._add.setFocus()

    def _on_added(self, devices: object) -> None:
        self._end_what_if()
        self.what_if_added.emit(devices)

    def _keep_rows(self, devices: tuple[Device, ...]) -> None:
        names = [d.name for d in devices]
        if list(self._rows) == names:
            return
        for name in list(self._rows):
            if name not in names:
                row = self._rows.pop(name)
                self._list.removeWidget(row)
                row.hide()
                row.deleteLater()
        for device in devices:
            if device.name not in self._rows:
                row = _DeviceRow(device.name, device.source)
                row.ticked.connect(self.ticked)
                remote = device.source is DeviceSource.RPC
                row.removed.connect(self.rpc_removed if remote else self.what_if_removed)
                self._rows[device.name] = row
        self._rows = {name: self._rows[name] for name in names}
        for index, row in enumerate(self._rows.values()):
            self._list.insertWidget(index, row)
        tab_inside(self, *(part for row in self._rows.values() for part in row.stops))


class _DeviceRow(QWidget):
    """Check box, name, description and free memory; below it who holds memory, or why nothing is known."""

    ticked = Signal(object, object)
    removed = Signal(object)

    def __init__(self, name: str, source: DeviceSource | None) -> None:
        super().__init__()
        self._name = name
        self.box: QCheckBox | None = None
        #: Where the keyboard stops, in order.
        self.stops: list[QWidget] = []
        first = QHBoxLayout()
        first.setSpacing(0)
        first.setContentsMargins(0, 0, 0, 0)
        if source is not None:
            self.box = QCheckBox()
            self.box.setObjectName(f"use{name}")
            self.box.setAccessibleName(tr("Use {}").format(name))
            self.box.setFixedWidth(_INDENT)
            self.box.toggled.connect(lambda on: self.ticked.emit(self._name, on))
            first.addWidget(self.box)
            self.stops.append(self.box)
        else:
            first.addSpacing(_INDENT)
        # The server of a remote device stands beside its name; both together would fill the row.
        self._title = Label(name.partition("[")[0], Step.BODY, Weight.DemiBold)
        self._title.setAccessibleName(name)
        self._about = ElidedLabel(step=Step.SMALL, role="muted")
        self._free = Label(step=Step.SMALL)
        first.addWidget(self._title)
        first.addSpacing(7)
        first.addWidget(self._about, 1)
        first.addSpacing(Space.XS)
        first.addWidget(self._free)
        if source in (DeviceSource.WHAT_IF, DeviceSource.LOG, DeviceSource.SNAPSHOT, DeviceSource.RPC):
            remove = icon_button("close", tr("Remove {}").format(name), name=f"remove{name}")
            remove.setFixedSize(20, 20)
            remove.clicked.connect(lambda: self.removed.emit(self._name))
            first.addWidget(remove)
            self.stops.append(remove)
        # Of a process its size matters more than the middle of its name.
        self._second = ElidedLabel(step=Step.SMALL, role="muted", mode=Qt.TextElideMode.ElideMiddle)
        second = QHBoxLayout()
        second.setContentsMargins(_INDENT, 0, 0, 0)
        second.addWidget(self._second)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(1)
        layout.addLayout(first)
        layout.addLayout(second)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)

    def show_device(self, device: Device, used: bool) -> None:
        """Draw one device."""
        if self.box is not None and self.box.isChecked() != used:
            self.box.blockSignals(True)
            self.box.setChecked(used)
            self.box.blockSignals(False)
        self._about.setText(about_text(device, self.box is None))
        self._about.setToolTip(plain_tooltip(device.description or device.name))
        self._free.setText(free_text(device))
        self._free.set_role("ink" if used else "muted")
        self._title.set_role("ink" if used else "muted")
        self._second.setText(second_line(device, self.box is None))
        self._second.setToolTip(plain_tooltip(_details(device)))

    def texts(self) -> tuple[str, str]:
        parts = (self._title.text(), self._about.text(), self._free.text())
        return " ".join(p for p in parts if p), self._second.text()


def _add_button(text: str, name: str) -> QToolButton:
    button = QToolButton()
    button.setObjectName(name)
    button.setText(text)
    button.setIcon(icons.icon("plus"))
    button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button


def _read_what_if(text: str) -> object:
    from kvstudio.devices.what_if import parse

    return parse(text)


def _read_servers(text: str) -> object:
    from kvstudio.launch.rpc import parse_servers

    return parse_servers(text)


class _LineEditor(QWidget):
    """A line in the list where something is typed that is not there; what is wrong with it is said below."""

    accepted = Signal(object)
    cancelled = Signal()

    def __init__(self, name: str, title: str, example: str, read: Callable[[str], object]) -> None:
        super().__init__()
        self._read = read
        self.hide()
        self.field = QLineEdit()
        self.field.setObjectName(name)
        self.field.setPlaceholderText(example)
        self.field.setAccessibleName(title)
        self.field.returnPressed.connect(self._on_return)
        self.field.textEdited.connect(lambda _: self._say(""))
        self.field.installEventFilter(self)
        accept = icon_button("check", tr("Add"))
        accept.clicked.connect(self._on_return)
        cancel = icon_button("close", tr("Cancel"))
        cancel.clicked.connect(self.cancelled)
        row = QHBoxLayout()
        row.setSpacing(Space.XS)
        row.setContentsMargins(_INDENT, 0, 0, 0)
        row.addWidget(self.field, 1)
        row.addWidget(accept)
        row.addWidget(cancel)
        self._says = Label(step=Step.SMALL, role="bad", wrap=True)
        self._says.setContentsMargins(_INDENT, 0, 0, 0)
        self._says.hide()
        self.setMinimumHeight(Size.CONTROL)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(Space.XS)
        layout.addLayout(row)
        layout.addWidget(self._says)

    def begin(self) -> None:
        """Show empty, with the cursor in it."""
        self.field.clear()
        self._say("")
        self.show()
        self.field.setFocus()

    def error(self) -> str:
        """What is said below the field."""
        return self._says.text()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
            return True
        return super().eventFilter(watched, event)

    def _on_return(self) -> None:
        try:
            devices = self._read(self.field.text())
        except KvStudioError as error:
            self._say(said(error.message, error.hint))
            return
        self.accepted.emit(devices)

    def _say(self, text: str) -> None:
        self._says.setText(text)
        self._says.setVisible(bool(text))


def short_description(description: str) -> str:
    """`RTX 4090` for `NVIDIA GeForce RTX 4090`: the maker's noise goes, the tooltip has it all."""
    for noise in _NOISE:
        description = description.replace(noise, "")
    return description.strip()


def about_text(device: Device, is_host: bool) -> str:
    """What stands beside the name; nothing where it would only repeat the size below."""
    if is_host:
        return "RAM"
    if device.source is DeviceSource.WHAT_IF and device.total_bytes is not None:
        size = format_bytes(device.total_bytes).partition(".")[0]
        return "" if device.description.startswith(size) else short_description(device.description)
    return short_description(device.description)


def free_text(device: Device) -> str:
    """`23.6 free`, in GiB; below one GiB with its unit."""
    if device.free_bytes is None:
        return tr("unknown")
    if device.free_bytes < GIB:
        return tr("{} free").format(format_bytes(device.free_bytes))
    return tr("{} free").format(format_gib(device.free_bytes))


def second_line(device: Device, is_host: bool = False) -> str:
    """Who holds memory; without processes the total; the reason when nothing is known."""
    if device.total_bytes is None:
        return device.reason or tr("memory unknown")
    if device.source is DeviceSource.WHAT_IF:
        return tr("what-if, {}").format(format_bytes(device.total_bytes))
    if device.source is DeviceSource.LOG:
        return tr("from the log, {}").format(format_bytes(device.total_bytes))
    if device.processes and not is_host:
        return processes_line(device.processes)
    if device.free_bytes is None and device.reason:
        return device.reason
    return tr("of {}").format(format_bytes(device.total_bytes))


def processes_line(processes: tuple[DeviceProcess, ...]) -> str:
    """The biggest with its pid, the others summed: `python3 (4182) 7.6 GiB`, `Xorg 0.3, 2 more 0.1`."""
    known = sorted(processes, key=lambda p: p.bytes or 0, reverse=True)
    first, rest = known[0], known[1:]
    if not rest:
        size = format_bytes(first.bytes) if first.bytes is not None else tr("size unknown")
        return f"{first.name} ({first.pid}) {size}"
    more = sum(p.bytes or 0 for p in rest)
    head = f"{first.name} {format_gib(first.bytes)}" if first.bytes is not None else first.name
    return tr("{}, {} more {}").format(head, len(rest), format_gib(more))


def _details(device: Device) -> str:
    lines = [f"{p.name} ({p.pid}): {format_bytes(p.bytes) if p.bytes is not None else '?'}" for p in device.processes]
    if device.total_bytes is not None:
        lines.insert(0, tr("{} in all").format(format_bytes(device.total_bytes)))
    for text in (device.reason, device.driver and tr("Driver {}").format(device.driver), device.pci_id):
        if text:
            lines.append(text)
    return "\n".join(lines)
