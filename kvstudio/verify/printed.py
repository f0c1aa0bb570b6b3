"""Buffer lines of a launch to the buffers it holds: repeated reservations counted once, several caches added."""

import re
from collections.abc import Iterable

from kvstudio.runlog.values import BufferPrinted, ConfigPrinted, LogEvent
from kvstudio.verify.values import PrintedBuffer

#: A device buffer starts with its device's name; `CPU`, `CUDA_Host`, `AMX` and the like have no number behind letters.
_DEVICE = re.compile(r"[A-Za-z]+\d+(?:\[[^\]]*\])?")
#: Kinds that a context reserves again instead of in addition.
_REPLACED = frozenset({"compute", "output"})


def device_of(buffer_name: str) -> str | None:
    """`MTL0_Mapped` -> `MTL0`, `RPC0[host:port]` as it is, None for host memory."""
    found = _DEVICE.match(buffer_name)
    return None if found is None or buffer_name.upper().startswith("CPU") else found.group()


class PrintedBuffers:
    """Collects buffers event by event."""

    def __init__(self) -> None:
        self._buffers: list[PrintedBuffer] = []
        self._context = 0
        self._places: dict[tuple[int, str, str], int] = {}

    def feed(self, events: Iterable[LogEvent]) -> None:
        for event in events:
            if isinstance(event, ConfigPrinted) and event.key == "n_seq_max":
                self._context += 1  # the first figure a new context prints; a draft model has its own
            elif isinstance(event, BufferPrinted):
                self._add(event)

    def _add(self, event: BufferPrinted) -> None:
        buffer = PrintedBuffer(event.name, device_of(event.name), event.kind, event.bytes, event.line)
        key = (self._context, event.name, event.kind)
        if event.kind in _REPLACED and key in self._places:
            self._buffers[self._places[key]] = buffer
            return
        self._places[key] = len(self._buffers)
        self._buffers.append(buffer)

    @property
    def buffers(self) -> tuple[PrintedBuffer, ...]:
        return tuple(self._buffers)

    def per_device(self) -> dict[str, int]:
        """Bytes of all buffers by device."""
        sums: dict[str, int] = {}
        for buffer in self._buffers:
            if buffer.device is not None:
                sums[buffer.device] = sums.get(buffer.device, 0) + buffer.bytes
        return sums


def printed_buffers(events: Iterable[LogEvent]) -> tuple[PrintedBuffer, ...]:
    """The buffers a finished log tells of."""
    collected = PrintedBuffers()
    collected.feed(events)
    return collected.buffers
