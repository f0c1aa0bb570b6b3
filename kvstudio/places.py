"""Where window and terminal keep what outlives them: the user's data folder, or KVSTUDIO_DATA."""

import os
from pathlib import Path


def data_dir() -> Path:
    """The folder of everything that is kept; not made here."""
    chosen = os.environ.get("KVSTUDIO_DATA")
    if chosen:
        return Path(chosen)
    from platformdirs import user_data_path

    return user_data_path("kvstudio", appauthor=False)


def history_dir() -> Path:
    """The folder of kept runs."""
    return data_dir() / "history"
