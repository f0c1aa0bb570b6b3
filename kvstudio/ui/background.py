"""What the window has done away from its thread: probing devices, asking llama.cpp, finding models; values out."""

from typing import Any

from kvstudio.case import evolve as evolving
from kvstudio.case import opening
from kvstudio.case.values import Case
from kvstudio.devices.values import Machine
from kvstudio.errors import KvStudioError
from kvstudio.launch.config import LaunchConfig
from kvstudio.oracle.values import OracleResult
from kvstudio.ui.panels.empty_page import Entry

# Each imports what it needs when it is called: nothing of it is in the first window.


def probe(listed: str | None) -> Machine:
    """The machine as it is now; `listed` is what the chosen binary lists."""
    from kvstudio.devices import probe as devices

    return devices.probe(listed)


def load_snapshot(path: str) -> Machine:
    """A machine from a file."""
    from kvstudio.devices.snapshot import load

    return load(path)


def check(case: Case) -> OracleResult:
    """llama.cpp's own figures for a case, remembered beside the history."""
    from kvstudio.oracle import check as oracle
    from kvstudio.oracle.cache import OracleCache
    from kvstudio.places import data_dir

    assert case.binary is not None
    cache = OracleCache(data_dir() / "checks")
    return oracle.check(case.config, case.binary, case.model, budget=case.budget, devices=case.chosen, cache=cache)


def find_models() -> tuple[tuple[Entry, ...], int]:
    """Models in the usual folders as rows, and in how many folders they are."""
    from kvstudio.header import discover

    found = discover.find_models()
    rows = tuple(Entry(model.path, model.name, model.detail, model.source, "chip") for model in found)
    return rows, len({model.source for model in found})


def import_work_page() -> None:
    """Read the modules of the page with the panels and of what it shows, so that building it is all that is left."""
    import kvstudio.budget.estimate
    import kvstudio.launch.argv
    import kvstudio.ui.work_page  # noqa: F401


def open_path(path: str) -> opening.Opened:
    """Read a file or folder, and whatever it takes to show it."""
    import_work_page()
    return opening.open_path(path)


def open_text(text: str) -> opening.Opened:
    """Read a pasted command line, path or log, and whatever it takes to show it."""
    import_work_page()
    return opening.open_text(text)


def read_command(config: LaunchConfig) -> opening.OpenedCommand:
    """Settings with the model they name, or with why it cannot be read."""
    try:
        return opening.OpenedCommand(config, opening.read_model(config.model_path))
    except KvStudioError as error:
        return opening.OpenedCommand(config, None, error)


def read_extras(config: LaunchConfig) -> tuple[LaunchConfig, Any]:
    """The settings, and what their other files take."""
    from kvstudio.budget import extra_files

    return config, extra_files.read_extras(config)


def fixes_of(case: Case) -> tuple[Case, Any, Any]:
    """The case, single changes that would fit, and what `-fit` makes of it."""
    return case, evolving.fixes_of(case), evolving.fit_of(case)
