"""Files that belong together: the model a log names, and the other files that a command names."""

import os
from typing import Any

from kvstudio.launch.config import LaunchConfig


def other_files(config: LaunchConfig) -> tuple[Any, ...]:
    """Draft model, projector and adapters that the settings name."""
    return tuple(filter(None, (config.model_draft, config.mmproj, *config.lora_paths)))


def not_yet_read(config: LaunchConfig) -> Any:
    """What a budget is worked out with until the other files are read: None where there are none to read."""
    if not other_files(config):
        return None
    from kvstudio.budget.extras import NO_EXTRAS

    return NO_EXTRAS


def same_file(one: str, other: str) -> bool:
    """Whether two paths, perhaps of two machines, end in one name."""
    return bool(one) and os.path.basename(one) == os.path.basename(other)


def may_be(named: str, path: str) -> bool:
    """Whether a file may be the one a log names: Ollama's have hashes for names, and many logs name none."""
    return not named or same_file(named, path) or os.path.basename(named).startswith("sha256")
