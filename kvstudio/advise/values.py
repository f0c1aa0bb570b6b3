"""Single changes and what they would do."""

from dataclasses import dataclass
from typing import Any

from kvstudio.budget.values import Budget
from kvstudio.launch.config import LaunchConfig


@dataclass(frozen=True, slots=True)
class Fix:
    """Exactly one variable changed. `variable`: n_ctx, n_parallel, cache_type_k, cache_type_v, n_gpu_layers, n_cpu_moe,
    tensor_split, split_mode, device, n_ubatch, flash_attn, swa_full, no_host... `before`/`after` its values.

    `title` is what a row says ("Context 49152"), `cost` what it takes away ("shorter context", "no cost"),
    `room_bytes` what the tightest device keeps free afterwards.
    """

    variable: str
    before: Any
    after: Any
    title: str
    why: str
    cost: str
    config: LaunchConfig
    budget: Budget
    room_bytes: int | None
