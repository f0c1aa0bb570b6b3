"""The files a launch names besides its model -> Extras; the one place where a budget reads anything."""

import os
from functools import lru_cache

from kvstudio.budget.extras import Extras
from kvstudio.errors import KvStudioError
from kvstudio.header.reader import read
from kvstudio.header.values import Header
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.describe import describe
from kvstudio.model.values import ModelInfo

_KEPT = 16


def read_extras(config: LaunchConfig) -> Extras:
    """Headers of the draft model, the projector and the adapters, kept while the files stay as they are.

    What cannot be read is left out: the budget then says that it is not counted.
    """
    adapters = tuple(_header(path) for path in config.lora_paths)
    return Extras(
        draft=_model(config.model_draft) if config.model_draft else None,
        projector=_header(config.mmproj) if config.mmproj else None,
        adapters=tuple(header for header in adapters if header is not None),
    )


def _header(path: str) -> Header | None:
    stamp = _stamp(path)
    return None if stamp is None else _read(path, stamp)


def _model(path: str) -> ModelInfo | None:
    stamp = _stamp(path)
    return None if stamp is None else _described(path, stamp)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=_KEPT)
def _read(path: str, _: tuple[int, int]) -> Header | None:
    try:
        return read(path)
    except KvStudioError:
        return None


@lru_cache(maxsize=_KEPT)
def _described(path: str, stamp: tuple[int, int]) -> ModelInfo | None:
    header = _read(path, stamp)
    try:
        return describe(header) if header is not None else None
    except KvStudioError:
        return None
