"""Free memory, asked again every two seconds: a timer and a probe in, machines out."""

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from kvstudio.errors import KvStudioError
from kvstudio.work import task

INTERVAL_MS = 2000
KEY = "device-poll"


class DevicePoll(QObject):
    """Probes while it may: `hold(reason)` stops it until `release(reason)`, for each reason apart."""

    polled = Signal(object)
    failed = Signal(object)

    def __init__(self, probe: Callable[[str | None], Any], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._probe = probe
        self._listed: str | None = None
        self._held: set[str] = set()
        self._busy = False
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self.poll_now)

    def set_listed(self, listed: str | None) -> None:
        """Text of the binary's --list-devices, which names the devices; polled at once."""
        self._listed = listed
        self._busy = False
        self.poll_now()

    def start(self) -> None:
        """Begin polling; the first probe starts at once."""
        if not self._held:
            self._timer.start()
            self.poll_now()

    def stop(self) -> None:
        """Stop, and drop what is under way."""
        self._timer.stop()
        self._busy = False
        task.forget(KEY)

    def hold(self, reason: str) -> None:
        """Pause for a reason (`hidden`, `launch`)."""
        self._held.add(reason)
        self._timer.stop()

    def release(self, reason: str) -> None:
        """End one reason to pause; polling goes on when none is left."""
        if reason in self._held:
            self._held.discard(reason)
            self.start()

    def is_active(self) -> bool:
        return self._timer.isActive()

    def poll_now(self) -> None:
        """Probe once, unless a probe is still under way or polling is held."""
        if self._busy or self._held:
            return
        self._busy = True
        task.run(self._probe, self._listed, done=self._on_done, failed=self._on_failed, key=KEY)

    def _on_done(self, machine: Any) -> None:
        self._busy = False
        self.polled.emit(machine)

    def _on_failed(self, error: KvStudioError) -> None:
        self._busy = False
        self.failed.emit(error)
