"""Frozen dataclasses to plain JSON values and back, led by their own annotations."""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union

from kvstudio.errors import StoreError


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings and numbers for any of our values; sets become sorted lists."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(to_plain(item) for item in value)
    if isinstance(value, tuple | list):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: Any, plain: Any, where: str = "") -> Any:
    """The value of type `kind` that `to_plain` wrote; keys we do not know are left out, missing ones take defaults.

    Raises: StoreError that names the place, when something is not of the annotated type.
    """
    origin = typing.get_origin(kind)
    if kind is Any:
        return plain
    if origin in (Union, types.UnionType):
        return _from_union(typing.get_args(kind), plain, where)
    if origin is tuple:
        return _from_tuple(typing.get_args(kind), plain, where)
    if origin in (frozenset, list):
        (item,) = typing.get_args(kind)
        return origin(from_plain(item, each, f"{where}[{i}]") for i, each in enumerate(_a_list(plain, where)))
    if origin is dict or origin is Mapping:
        _, item = typing.get_args(kind)
        return {str(key): from_plain(item, each, f"{where}.{key}") for key, each in _a_dict(plain, where).items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return _from_dataclass(kind, plain, where)
    return _from_scalar(kind, plain, where)


def _from_union(kinds: tuple[Any, ...], plain: Any, where: str) -> Any:
    if plain is None and type(None) in kinds:
        return None
    # bool before int and int before float, so that each comes back as what it was.
    kinds = tuple(k for k in kinds if k is not type(None))
    if type(plain) in kinds:
        return plain
    problem: StoreError | None = None
    for kind in kinds:
        try:
            return from_plain(kind, plain, where)
        except StoreError as error:
            problem = error
    raise problem or StoreError(f"{where}: nothing is expected here")


def _from_tuple(kinds: tuple[Any, ...], plain: Any, where: str) -> tuple[Any, ...]:
    items = _a_list(plain, where)
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(from_plain(kinds[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if len(items) != len(kinds):
        raise StoreError(f"{where}: {len(kinds)} entries expected, {len(items)} found")
    return tuple(from_plain(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, items)))


def _from_dataclass(kind: Any, plain: Any, where: str) -> Any:
    given = _a_dict(plain, where)
    hints = _hints(kind)
    values = {}
    for f in fields(kind):
        if not f.init:
            continue
        if f.name in given:
            values[f.name] = from_plain(hints[f.name], given[f.name], f"{where}.{f.name}" if where else f.name)
        elif f.default is MISSING and f.default_factory is MISSING:
            raise StoreError(f"{where or kind.__name__}: {f.name} is missing")
    return kind(**values)


def _from_scalar(kind: Any, plain: Any, where: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        try:
            return kind(plain)
        except ValueError as error:
            raise StoreError(f"{where}: {plain!r} is not a {kind.__name__}") from error
    if kind is float and type(plain) is int:
        return float(plain)
    if isinstance(kind, type) and type(plain) is kind:
        return plain
    raise StoreError(f"{where}: {getattr(kind, '__name__', kind)} expected, {type(plain).__name__} found")


def _a_list(plain: Any, where: str) -> list[Any]:
    if not isinstance(plain, list):
        raise StoreError(f"{where}: a list expected, {type(plain).__name__} found")
    return plain


def _a_dict(plain: Any, where: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise StoreError(f"{where}: an object expected, {type(plain).__name__} found")
    return plain


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
