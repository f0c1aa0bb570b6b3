"""The order in which variables are worth trying, by what was refused."""

from kvstudio.budget.values import BufferKind

#: What makes room in RAM where it is the RAM that is short; none of it applies to devices.
_IN_RAM = ("load_mode", "repack")
#: Least harm first. Placement costs nothing, so it leads wherever another device may have room.
_PLACEMENT = ("tensor_split", "split_ratio")
_ORDER: dict[BufferKind | None, tuple[str, ...]] = {
    BufferKind.KV: (*_PLACEMENT, "swa_full", "n_ctx", "cache_type", "n_parallel", "device", "n_cpu_moe",
                    "n_gpu_layers", "kv_offload", *_IN_RAM),
    BufferKind.RS: ("n_parallel", *_PLACEMENT, "device", "n_gpu_layers", "kv_offload", *_IN_RAM),
    BufferKind.COMPUTE: ("flash_attn", "n_ubatch", *_PLACEMENT, "n_ctx", "n_parallel", "device", "n_cpu_moe",
                         "n_gpu_layers", *_IN_RAM),
    BufferKind.MODEL: (*_PLACEMENT, *_IN_RAM, "n_cpu_moe", "n_gpu_layers", "device"),
    BufferKind.OUTPUT: ("n_parallel", "n_ubatch"),
    None: (*_PLACEMENT, "swa_full", "flash_attn", "n_ctx", "cache_type", "n_parallel", "n_ubatch", "device",
           "n_cpu_moe", "n_gpu_layers", "kv_offload", *_IN_RAM),
}  # fmt: skip


def order(failing: BufferKind | None, *, single_types: bool = False) -> tuple[str, ...]:
    """Variables in the order they are tried; with `single_types` K and V are two variables, each tried alone."""
    names = _ORDER.get(failing, _ORDER[None])
    if not single_types:
        return names
    split = (("cache_type_k", "cache_type_v") if name == "cache_type" else (name,) for name in names)
    return tuple(name for group in split for name in group)
