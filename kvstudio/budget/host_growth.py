"""Host memory that grows after the load: stored prompts and checkpoints; never part of a budget's sums.

Source: llama.cpp b11434, tools/server/server-task.cpp (server_prompt_cache), server-context.cpp (create_checkpoint).
"""

from dataclasses import dataclass

from kvstudio.budget.values import Budget, BufferKind
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.architectures import CacheClass
from kvstudio.model.values import ModelInfo
from kvstudio.units import MIB, format_bytes

_DEFAULT_CACHE_MIB = 8192
_DEFAULT_CHECKPOINTS = 32
_SERVERS = ("llama-server", "llama-cli")


@dataclass(frozen=True, slots=True)
class HostGrowth:
    """Upper bounds in bytes; `prompt_cache_bytes` None means no limit."""

    prompt_cache_bytes: int | None
    checkpoint_bytes: int

    def note(self) -> str | None:
        """A sentence, or None when nothing grows."""
        parts = []
        if self.prompt_cache_bytes is None:
            parts.append("stored prompts without limit")
        elif self.prompt_cache_bytes:
            parts.append(f"up to {format_bytes(self.prompt_cache_bytes)} of stored prompts")
        if self.checkpoint_bytes:
            parts.append(f"up to {format_bytes(self.checkpoint_bytes)} of checkpoints")
        return f"host memory grows in use: {' and '.join(parts)}." if parts else None


def host_growth(model: ModelInfo, config: LaunchConfig, budget: Budget) -> HostGrowth | None:
    """What the server may keep in host memory later on; None for programs that keep nothing."""
    if budget.config.program not in _SERVERS:
        return None
    limit = _DEFAULT_CACHE_MIB if config.cache_ram is None else config.cache_ram
    many = _DEFAULT_CHECKPOINTS if config.ctx_checkpoints is None else config.ctx_checkpoints
    return HostGrowth(None if limit < 0 else limit * MIB, max(0, many) * _checkpoint_bytes(model, budget))


def _checkpoint_bytes(model: ModelInfo, budget: Budget) -> int:
    """One checkpoint of every slot: recurrent state and window cells, where a context cannot be rolled back."""
    cache: CacheClass = model.hparams["cache"]
    state = sum(buffer.bytes or 0 for buffer in budget.buffers if buffer.kind is BufferKind.RS)
    windows = 0
    if model.n_swa and cache is not CacheClass.DSV4 and not budget.config.swa_full:
        windows = sum(part.k_bytes + part.v_bytes for part in budget.caches if part.kind == "kv_swa")
    return state + windows
