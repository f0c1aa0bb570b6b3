"""The one case on screen: wishes in, `changed(old, new)` out, the values before kept for undo."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from kvstudio.case import evolve as evolving
from kvstudio.case import opening
from kvstudio.case import store as case_file
from kvstudio.case.values import Case
from kvstudio.devices.values import Device, Machine
from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.ui import background, choosing
from kvstudio.ui.budgets import Budgets
from kvstudio.ui.files import may_be, not_yet_read, other_files, same_file
from kvstudio.ui.text import log_line, model_line
from kvstudio.ui.undo import Steps
from kvstudio.work import task

#: Settings that belong to one model file, not to the next one.
_OF_ONE_MODEL = (
    "hf_repo",
    "hf_file",
    "mmproj",
    "lora",
    "lora_scaled",
    "control_vector",
    "control_vector_scaled",
    "model_draft",
    "override_tensor",
)
#: What a log from elsewhere names and is not needed once its model is a file here.
_ELSEWHERE = ("hf_repo", "hf_file")
_FIX_DELAY_MS = 60
_FIELDS = tuple(LaunchConfig.__dataclass_fields__.keys() - {"program", "model_path", "env", "layout", "build"})


class Store(QObject):
    """Holds the case; only actions here replace it.

    `failed` carries a KvStudioError for the banner, `noted` a sentence, `opened` (path, kind, title, detail) for the
    recent list, `asked` something that needs the user's answer (a projector without a model, a folder),
    `working_changed` whether the budget takes so long that it has to be said.
    """

    changed = Signal(object, object)
    failed = Signal(object)
    noted = Signal(str)
    opened = Signal(object)
    asked = Signal(object)
    busy_changed = Signal(str)
    working_changed = Signal(bool)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._case = Case()
        self._steps = Steps()
        self._budgets = Budgets(self)
        self._budgets.arrived.connect(self._on_budget)
        self._budgets.failed.connect(self._on_no_budget)
        self._budgets.working_changed.connect(self.working_changed)
        self._fixes_for: LaunchConfig | None = None
        self._fixes = task.Latest(background.fixes_of, self._on_fixes, self.failed.emit)
        self.destroyed.connect(self._fixes.drop)
        self._extras = task.Latest(background.read_extras, self._on_extras, self.failed.emit)
        self.destroyed.connect(self._extras.drop)
        self._live: dict[str, Any] = {}
        self._live_timer = QTimer(self)
        self._live_timer.setSingleShot(True)
        self._live_timer.timeout.connect(self._on_live)
        self._fix_timer = QTimer(self)
        self._fix_timer.setSingleShot(True)
        self._fix_timer.setInterval(_FIX_DELAY_MS)
        self._fix_timer.timeout.connect(self._start_fixes)

    @property
    def case(self) -> Case:
        return self._case

    @property
    def is_working(self) -> bool:
        """Whether the budget on the page is that of earlier settings: the new one takes longer."""
        return self._budgets.is_working

    @property
    def is_dragging(self) -> bool:
        """Whether the change just shown is part of a drag, which is drawn without motion."""
        return self._steps.is_merging

    # Opening -----------------------------------------------------------------------------------------------------

    def open_paths(self, paths: Sequence[str]) -> None:
        """Open what was dropped or named; of several files the last model or log stays, projectors join it."""
        ordered = sorted(paths, key=lambda path: "mmproj" in Path(path).name.lower())
        for path in ordered:
            self.open_path(path, alone=len(ordered) == 1)

    def open_path(self, path: str, alone: bool = True) -> None:
        """Read a file or folder in the background, then show it; the case stays as it was when that fails."""
        self.busy_changed.emit(f"Reading {Path(path).name}…")
        key = "open" if alone else f"open {path}"
        task.run(background.open_path, path, done=self._on_opened, failed=self._on_open_failed, key=key)

    def open_for_log(self, path: str) -> None:
        """Open what a person says is the model of the log on screen, whatever it is called here."""

        def on_opened(what: opening.Opened) -> None:
            if not isinstance(what, opening.OpenedModel) or self._case.model is not None:
                self._on_opened(what)
                return
            self.busy_changed.emit("")
            self.show_model(what.model, what.path, for_log=True)

        self.busy_changed.emit(f"Reading {Path(path).name}…")
        task.run(background.open_path, path, done=on_opened, failed=self._on_open_failed, key="open")

    def open_text(self, text: str) -> None:
        """Open a pasted command line, path or log."""
        self.busy_changed.emit("Reading…")
        task.run(background.open_text, text, done=self._on_opened, failed=self._on_open_failed, key="open")

    def _on_open_failed(self, error: KvStudioError) -> None:
        self.busy_changed.emit("")
        self.failed.emit(error)

    def _on_opened(self, what: opening.Opened) -> None:
        self.busy_changed.emit("")
        match what:
            case opening.OpenedModel():
                self.show_model(what.model, what.path)
            case opening.OpenedProjector():
                self._show_projector(what)
            case opening.OpenedLog():
                self._show_log(what)
            case opening.OpenedCase():
                self._show_case(what)
            case opening.OpenedCommand():
                self._show_command(what)
            case opening.OpenedFolder():
                self._show_folder(what)

    def show_model(self, model: ModelInfo, path: str, for_log: bool = False) -> None:
        """Put a model on the page; the settings typed so far stay, but for those that belong to one model.

        A log that was opened without its model stays where this is it: `for_log` says so, else the names tell.
        """
        waiting = self._case.model is None and bool(self._case.log)
        of_log = waiting and (for_log or may_be(self._case.config.model_path, path))
        others = _ELSEWHERE if of_log else _OF_ONE_MODEL
        config = self._case.config.evolve(model_path=path, **dict.fromkeys(others))
        changes: dict[str, Any] = {"model": model, "config": config}
        if not of_log:
            changes |= {"runs": (), "log": (), "log_source": "", "diagnosis": None}
        self._replace(undo=True, **changes)
        self.opened.emit((path, "model", Path(path).name, model_line(model)))
        if model.header.missing_shards:
            missing = ", ".join(Path(m).name for m in model.header.missing_shards)
            self.failed.emit(KvStudioError(f"Missing shards: {missing}", "The budget counts only what is there."))
        elif model.header.size_bytes < model.header.need_bytes:
            have, need = model.header.size_bytes, model.header.need_bytes
            self.failed.emit(
                KvStudioError(
                    f"Incomplete download: {have} of {need} bytes", "The budget is right, a launch will fail."
                )
            )

    def _show_projector(self, what: opening.OpenedProjector) -> None:
        if self._case.model is None:
            self.failed.emit(
                KvStudioError(
                    f"{Path(what.path).name} is a multimodal projector, not a model",
                    "Open its model first, then drop the projector again.",
                )
            )
            return
        self.asked.emit(what)

    def use_projector(self, path: str) -> None:
        """Take a projector into the settings (`--mmproj`)."""
        self.edit({"mmproj": path})
        self.noted.emit(f"{Path(path).name} is the projector of {self._case.model.name if self._case.model else ''}")

    def _show_log(self, what: opening.OpenedLog) -> None:
        read = what.log
        changes: dict[str, Any] = {
            "log": tuple(read.lines),
            "log_source": what.path,
            "diagnosis": read.diagnosis,
        }
        config = what.config
        if config is not None:
            kept = self._case.model if same_file(self._case.config.model_path, config.model_path) else None
            model = what.model or kept
            if kept is not None and what.model is None:
                config = config.evolve(model_path=self._case.config.model_path)
            changes |= {"config": config, "model": model}
        others = choosing.devices_of_log(tuple(read.events), self._case.machine)
        if others:
            changes |= {"what_if": others, "chosen": tuple(d.name for d in others)}
        self._replace(undo=True, **changes)
        self.opened.emit((what.path, "log", Path(what.path).name, log_line(read.diagnosis)))

    def _show_case(self, what: opening.OpenedCase) -> None:
        loaded = what.case
        self._steps.remember(self._case)
        machine = self._case.machine
        if loaded.machine is not None and not choosing.same_devices(loaded.machine, machine):
            # The case was made elsewhere: its devices stay as what-if ones beside this machine's.
            loaded = loaded.replace(what_if=choosing.without_doubles(loaded.machine.devices + loaded.what_if))
        kept = {"machine": machine, "binary": self._case.binary, "remembered": self._case.remembered}
        self._work_out(loaded.replace(**kept, extras=not_yet_read(loaded.config)))
        self._read_extras()
        title = loaded.model.name if loaded.model else Path(what.path).name
        self.opened.emit((what.path, "case", Path(what.path).name, f"case, {title}"))

    def _show_command(self, what: opening.OpenedCommand) -> None:
        changes: dict[str, Any] = {"config": what.config}
        if what.model is not None:
            changes["model"] = what.model
        elif what.config.model_path and not same_file(what.config.model_path, self._case.config.model_path):
            changes["model"] = None
        elif self._case.model is not None:
            changes["config"] = what.config.evolve(model_path=self._case.config.model_path)
        if what.config.device is not None:
            changes["chosen"] = choosing.named(self._case.devices, what.config.device)
        self._replace(undo=True, **changes)
        if what.problem is not None:
            self.failed.emit(what.problem)

    def _show_folder(self, what: opening.OpenedFolder) -> None:
        if len(what.models) + len(what.logs) == 1:
            self.open_path((what.models + what.logs)[0])
            return
        self.asked.emit(what)

    def save_case(self, path: str) -> None:
        """Write the case to a file in the background."""

        def on_done(_: Any) -> None:
            self.noted.emit(f"Saved as {Path(path).name}")
            title = self._case.model.name if self._case.model else "no model"
            self.opened.emit((path, "case", Path(path).name, f"case, {title}"))

        task.run(case_file.save, self._case, path, done=on_done, failed=self.failed.emit, key="save")

    def close_case(self) -> None:
        """Back to the empty page; machine and binary stay."""
        case = self._case
        self._steps.remember(self._case)
        self._budgets.drop()
        kept = Case(machine=case.machine, binary=case.binary, chosen=case.chosen)
        self._show(kept.replace(remembered=case.remembered))

    # Editing -----------------------------------------------------------------------------------------------------

    def edit(self, changes: dict[str, Any]) -> None:
        """Replace settings by field name."""
        self._flush_live()
        self._steps.end_merge()
        config = self._case.config.evolve(**changes)
        if config != self._case.config:
            self._replace(undo=True, config=config)

    def drag(self, changes: dict[str, Any]) -> None:
        """Replace settings while the mouse is down; the whole drag is one undo step.

        Of values that come faster than they are shown only the last counts.
        """
        self._live |= changes
        self._live_timer.start(0)

    def _on_live(self) -> None:
        changes, self._live = self._live, {}
        config = self._case.config.evolve(**changes)
        if config != self._case.config:
            self._replace(undo=True, tag=f"drag {','.join(changes)}", config=config)

    def _flush_live(self) -> None:
        if self._live:
            self._live_timer.stop()
            self._on_live()

    def end_live(self) -> None:
        """A drag is over: the next one is an undo step of its own, and fixes are worked out."""
        self._flush_live()
        self._steps.end_merge()
        self._fix_timer.start()

    def set_config(self, config: LaunchConfig) -> None:
        """Take settings read from an edited command line; a model it names anew is opened."""
        old = self._case.config
        if config.model_path and not same_file(config.model_path, old.model_path):
            task.run(background.read_command, config, done=self._on_opened, failed=self.failed.emit, key="open")
            return
        changes: dict[str, Any] = {"config": config}
        if config.device is not None and config.device != old.device:
            changes["chosen"] = choosing.named(self._case.devices, config.device)
        self._replace(undo=True, **changes)

    def reset_settings(self) -> None:
        """Everything typed goes, but for the model and what the server needs to be reached."""
        old = self._case.config
        self.set_config(LaunchConfig(program=old.program, model_path=old.model_path, build=old.build))

    def apply_fix(self, fix: Any) -> None:
        """Take over what a fix changes, and nothing else that changed since it was worked out."""
        base = self._fixes_for or self._case.config
        self.edit(
            {name: getattr(fix.config, name) for name in _FIELDS if getattr(fix.config, name) != getattr(base, name)}
        )

    def set_note(self, note: str) -> None:
        self._replace(undo=False, note=note)

    # Devices and binary ------------------------------------------------------------------------------------------

    def tick(self, name: str, on: bool) -> None:
        """Use a device, or not; leaving a live one out is said to llama.cpp too (`-dev`)."""
        self._replace(undo=True, **choosing.ticked(self._case, name, on))

    def add_what_if(self, devices: tuple[Device, ...]) -> None:
        """Add devices that are not there; they are used at once."""
        self._replace(undo=True, **choosing.with_what_if(self._case, devices))

    def remove_what_if(self, name: str) -> None:
        """Take a what-if device away; when none is left, this machine's own devices are used again."""
        self._replace(undo=True, **choosing.without_what_if(self._case, name))

    def add_rpc(self, servers: tuple[str, ...]) -> None:
        """Use the devices of RPC servers too (`--rpc`)."""
        self.edit({"rpc": tuple(dict.fromkeys((*(self._case.config.rpc or ()), *servers)))})

    def remove_rpc(self, name: str) -> None:
        """Do without the server that a device `RPC0[host:port]` belongs to."""
        server = name.partition("[")[2].rstrip("]")
        self.edit({"rpc": tuple(s for s in self._case.config.rpc or () if s != server) or None})

    def set_machine(self, machine: Machine) -> None:
        """New figures of the devices; the user's ticks stay, new devices are ticked as llama.cpp would use them."""
        changes = choosing.with_machine(self._case, machine)
        if changes:
            self._replace(undo=False, **changes)

    def set_binary(self, binary: Binary | None) -> None:
        """Use another llama.cpp program; its build decides rules and defaults."""
        if binary != self._case.binary:
            self._replace(undo=False, binary=binary)

    def replace(self, **changes: Any) -> None:
        """Replace values of the case that no action above covers (runs, a log's lines, a diagnosis)."""
        self._replace(undo=False, **changes)

    # Undo --------------------------------------------------------------------------------------------------------

    @property
    def can_undo(self) -> bool:
        return self._steps.can_undo

    @property
    def can_redo(self) -> bool:
        return self._steps.can_redo

    def undo(self) -> None:
        """The settings, devices and model before the last change; runs stay."""
        self._go_to(self._steps.back(self._case))

    def redo(self) -> None:
        """The change that was undone last, made again."""
        self._go_to(self._steps.forward(self._case))

    def _go_to(self, kept: Case | None) -> None:
        if kept is None:
            return
        now = self._case
        back = kept.replace(machine=now.machine, binary=now.binary, remembered=now.remembered)
        if back.model is now.model:
            back = back.replace(runs=now.runs, log=now.log, log_source=now.log_source, diagnosis=now.diagnosis)
        self._work_out(back)

    def _replace(self, undo: bool, tag: str | None = None, **changes: Any) -> None:
        config = changes.get("config", self._case.config)
        others_differ = other_files(config) != other_files(self._case.config)
        if others_differ:
            changes["extras"] = not_yet_read(config)
        before, new = self._case, self._case.replace(**changes)
        if evolving.is_budget_input(changes):
            if not self._work_out(new, lambda: self._steps.remember(before, tag) if undo else None):
                return
        else:
            if undo:
                self._steps.remember(before, tag)
            self._show(evolving.settled(new))
        if others_differ:
            self._read_extras()

    def _work_out(self, new: Case, remember: Callable[[], None] = lambda: None) -> bool:
        """Show a case, with its budget as soon as that is known; False where there can be none, and nothing changed.

        Until then the one of the settings before stays on the page, and `is_working` says so.
        """
        early = self._budgets.ask(new)
        if early is not None and early.error is not None:
            self.failed.emit(early.error)
            if self.is_working:
                self._work_out(self._case)  # what was under way is wanted again
            return False
        remember()
        if early is not None:
            self._show(early.result)
        else:
            stays = new.model is self._case.model
            self._show(new.replace(budget=self._case.budget if stays else None, fitted=None, fixes=()))
        return True

    def _on_budget(self, found: Case) -> None:
        self._show(evolving.settled(self._case.replace(budget=found.budget, fitted=None)))

    def _on_no_budget(self, error: KvStudioError) -> None:
        self._show(self._case.replace(budget=None, fitted=None, fixes=()))
        self.failed.emit(error)

    def _show(self, new: Case) -> None:
        old, self._case = self._case, new
        self.changed.emit(old, new)
        changed = new.budget is not old.budget or new.diagnosis is not old.diagnosis
        # While a drag goes on they would compete with it for the processor, and be old at once.
        if changed and not self.is_dragging:
            self._fix_timer.start()

    # Other files of the launch are read in the background -------------------------------------------------------------

    def _read_extras(self) -> None:
        if other_files(self._case.config):
            self._extras.ask(self._case.config)

    def _on_extras(self, found: tuple[LaunchConfig, Any]) -> None:
        asked, extras = found
        if other_files(asked) == other_files(self._case.config):
            self._replace(undo=False, extras=extras)

    # Fixes come a moment later ------------------------------------------------------------------------------------

    def _start_fixes(self) -> None:
        if self._case.budget is not None and not self.is_working:
            self._fixes.ask(self._case)

    def _on_fixes(self, found: tuple[Case, Any, Any]) -> None:
        asked, fixes, fitted = found
        if self._case.config != asked.config or self._case.model is not asked.model:
            return
        self._fixes_for = asked.config
        if fixes != self._case.fixes or fitted != self._case.fitted:
            self._show(self._case.replace(fixes=fixes, fitted=fitted))
