"""Dry runs that were made before, by everything that decides their figures."""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvstudio.budget.values import EffectiveConfig
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.oracle.values import Measured

SCHEMA = "kvstudio.oracle/1"
#: Settings that change no buffer.
_NO_MEMORY = frozenset({"host", "port", "api_key", "threads", "log_verbosity", "fit", "warmup", "cache_ram"})


#: Variables of the child that decide which devices there are, or what their backends do.
_DEVICE_VARIABLES = ("CUDA_", "HIP_", "ROCR_", "GGML_", "ONEAPI_", "ZE_", "MTL_", "ASCEND_", "VK_")


def cache_key(
    binary: Binary,
    model: ModelInfo,
    config: LaunchConfig,
    effective: EffectiveConfig | None,
    devices: Iterable[str],
    env: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A name for (binary build, model, effective config, devices); `env` is the child's whole environment."""
    typed = {name: value for name, value in config.typed().items() if name not in _NO_MEMORY}
    unknown = sorted(arg.tokens for arg in config.layout if arg.field is None)
    header = model.header
    parts: dict[str, Any] = {
        "binary": (binary.path, binary.version, binary.build, binary.commit, _stamp(binary.path)),
        "model": (model.name, model.architecture, header.size_bytes, model.n_params, model.tensor_bytes),
        "file": (config.model_path, _stamp(config.model_path)),
        "config": typed,
        "unknown": unknown,
        "env": sorted(config.env),
        "inherited": sorted(pair for pair in env.items() if pair[0].startswith(_DEVICE_VARIABLES)),
        "effective": asdict(effective) if effective is not None else None,
        "devices": list(devices),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_size, there.st_mtime_ns


class OracleCache:
    """Keeps measured tables in memory, and in `folder` when one is given; a broken file is as good as none."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._known: dict[str, tuple[Measured, ...]] = {}

    def get(self, key: str) -> tuple[Measured, ...] | None:
        if key not in self._known and self._folder is not None:
            rows = _read(self._folder / f"{key}.json")
            if rows:
                self._known[key] = rows
        return self._known.get(key)

    def put(self, key: str, rows: tuple[Measured, ...]) -> None:
        """Remember; a folder that cannot be written costs only the next start its memory."""
        self._known[key] = rows
        if self._folder is not None:
            with contextlib.suppress(OSError):
                _write(self._folder, f"{key}.json", rows)


def _read(path: Path) -> tuple[Measured, ...]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            return ()
        return tuple(
            Measured(
                str(row["name"]), bool(row["is_device"]), int(row["model"]), int(row["context"]), int(row["compute"])
            )
            for row in plain["rows"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ()


def _write(folder: Path, name: str, rows: tuple[Measured, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "rows": [asdict(row) for row in rows]}, file)
        os.replace(temporary, folder / name)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
