"""Typed reading of one architecture's metadata keys, remembering what was missing or absurd."""

import math
from collections.abc import Mapping

from kvstudio.errors import HeaderError
from kvstudio.header.values import ArrayValue, MetadataValue

MAX_COUNT = 2**31 - 1
_HINT = "The file's metadata is damaged or was written by a broken converter."


class Keys:
    """Reads `<architecture>.<key>` values; `missing` and `odd` collect what was not there or not usable.

    A value is usable when it is a whole number from 0 to `limit`; booleans are not numbers. Required keys that cannot
    be used raise HeaderError naming key and value.
    """

    def __init__(self, metadata: Mapping[str, MetadataValue], architecture: str) -> None:
        self._metadata = metadata
        self._architecture = architecture
        self.missing: list[str] = []
        self.odd: list[str] = []

    def name(self, key: str) -> str:
        return f"{self._architecture}.{key}"

    def has(self, key: str) -> bool:
        return self.name(key) in self._metadata

    def is_array(self, key: str) -> bool:
        return isinstance(self._metadata.get(self.name(key)), ArrayValue)

    def essential(self, key: str, limit: int = MAX_COUNT, least: int = 1) -> int:
        """A number nothing can be said without. Raises: HeaderError when it is missing, mistyped or absurd."""
        name = self.name(key)
        if name not in self._metadata:
            raise HeaderError(f"{name} is missing", "Without it nothing can be said about the model's memory.")
        value = self._metadata[name]
        number = _whole(value)
        if number is None or not least <= number <= limit:
            raise HeaderError(f"{name} is {_shown(value)}, expected a number from {least} to {limit}", _HINT)
        return number

    def number(self, key: str, default: int = 0, limit: int = MAX_COUNT) -> int:
        """An optional number; `default` when it is missing or unusable."""
        value = self._metadata.get(self.name(key))
        if value is None:
            return default
        number = _whole(value)
        if number is None or not 0 <= number <= limit:
            self.odd.append(f"{self.name(key)} is {_shown(value)}, ignored")
            return default
        return number

    def needed(self, key: str, default: int = 0, limit: int = MAX_COUNT) -> int:
        """A number llama.cpp requires for this architecture; noted in `missing` when it is not usable."""
        if not self.has(key):
            self.missing.append(self.name(key))
            return default
        before = len(self.odd)
        number = self.number(key, default, limit)
        if len(self.odd) > before:
            self.missing.append(self.name(key))
        return number

    def real(self, key: str, default: float = 0.0) -> float:
        value = self._metadata.get(self.name(key))
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        return default

    def flag(self, key: str, default: bool) -> bool:
        value = self._metadata.get(self.name(key))
        return value if isinstance(value, bool) else default

    def text(self, key: str) -> str | None:
        value = self._metadata.get(self.name(key))
        return value if isinstance(value, str) else None

    def per_layer(self, key: str, n: int, fill: tuple[int, ...] | int = 0) -> tuple[int, ...]:
        """`n` numbers from a scalar (repeated) or an array (as far as it goes, then `fill`), as llama.cpp does."""
        rest = fill if isinstance(fill, tuple) else (fill,) * n
        name = self.name(key)
        value = self._metadata.get(name)
        if value is None:
            return rest
        if not isinstance(value, ArrayValue):
            number = _whole(value)
            if number is None or not 0 <= number <= MAX_COUNT:
                self.odd.append(f"{name} is {_shown(value)}, ignored")
                return rest
            return (number,) * n
        if value.values is None:
            self.odd.append(f"{name} is an array that was not kept, ignored")
            return rest
        numbers = [_whole(item, booleans=True) for item in value.values[:n]]
        if any(number is None or not 0 <= number <= MAX_COUNT for number in numbers):
            self.odd.append(f"{name} holds something other than counts, ignored")
            return rest
        known = tuple(number for number in numbers if number is not None)
        return known + rest[len(known) :]

    def array(self, key: str) -> tuple[int, ...] | None:
        """All numbers of an array, None when there is none or it holds something else."""
        value = self._metadata.get(self.name(key))
        if not isinstance(value, ArrayValue) or value.values is None:
            return None
        numbers = [_whole(item, booleans=True) for item in value.values]
        return None if None in numbers else tuple(number for number in numbers if number is not None)

    def count(self, key: str) -> int | None:
        """Length of an array, whether or not its values were kept."""
        value = self._metadata.get(self.name(key))
        return value.count if isinstance(value, ArrayValue) else None


def _whole(value: MetadataValue, booleans: bool = False) -> int | None:
    if isinstance(value, bool):
        return int(value) if booleans else None
    if isinstance(value, int):
        return value
    return None


def _shown(value: MetadataValue) -> str:
    if isinstance(value, ArrayValue):
        return f"an array of {value.count}"
    return repr(value) if isinstance(value, str) else str(value)
