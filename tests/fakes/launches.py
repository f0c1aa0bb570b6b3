"""The fake llama-server as a Binary, and a launch of it."""

import os
import threading
from pathlib import Path

from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.verify import launch as verify_launch
from kvstudio.verify.options import LaunchOptions

FAKE = str(Path(__file__).with_name("fake_llama.py"))
FLAGS = frozenset({"-m", "-c", "-np", "-ngl", "-fit", "--fit", "-lv", "--verbosity", "--host", "--port"})


def fake_binary(**changes):
    values = {
        "path": FAKE, "program": "llama-server", "version": "10434 (7e4c0a9)", "build": 10434, "commit": "7e4c0a9",
        "compiler": None, "backends": ("Vulkan",), "flags": FLAGS,
    }  # fmt: skip
    return Binary(**(values | changes))


def fake_config(settings=None, **env):
    variables = tuple((f"FAKE_LLAMA_{name.upper()}", str(value)) for name, value in env.items())
    values = {"model_path": "/models/a.gguf", "n_ctx": 4096, "n_parallel": 1, "n_gpu_layers": 99}
    return LaunchConfig(env=(("PATH", os.environ["PATH"]), *variables), **(values | (settings or {})))


def fake_launch(tmp_path, config=None, binary=None, cancel=None, budget=None, machine=None, on=None, **options):
    options = {"repeat": 2, "log_dir": str(tmp_path), "timeout_s": 30.0, "phase_timeout_s": 10.0} | options
    return verify_launch.test_launch(
        config or fake_config(),
        fake_binary() if binary is None else binary,
        options=LaunchOptions(**options),
        cancel=cancel or threading.Event(),
        budget=budget,
        machine=machine,
        **(on or {}),
    )
