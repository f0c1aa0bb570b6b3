"""Small budgets to compare with."""

from kvstudio.budget.values import Budget, DeviceBudget, EffectiveConfig


def effective(**changes):
    values = {
        "program": "llama-server", "build": 10434, "n_ctx": 4096, "n_ctx_seq": 4096, "n_parallel": 1,
        "kv_unified": False, "n_batch": 2048, "n_ubatch": 512, "n_outputs_max": 1, "cache_type_k": "f16",
        "cache_type_v": "f16", "n_gpu_layers": -2, "flash_attn": "auto", "flash_attn_on": True, "split_mode": "layer",
        "kv_offload": True, "op_offload": True, "swa_full": False, "fit": True,
    }  # fmt: skip
    return EffectiveConfig(**(values | changes))


def place(name, sizes):
    kinds = {f"{kind}_bytes": sizes.get(kind, 0) for kind in ("model", "kv", "rs", "compute", "output")}
    return DeviceBudget(name, "", None, None, **kinds, overhead_bytes=None, other_bytes=None)


def budget_of(host=None, offloaded=(19, 19), config=None, **devices):
    return Budget(
        config=config or effective(),
        offloaded_layers=offloaded,
        devices=tuple(place(name, sizes) for name, sizes in devices.items()),
        host=place("Host", host or {}),
        buffers=(),
        caches=(),
        first_failure=None,
    )
