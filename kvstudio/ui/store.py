"""The one case on screen: wishes in, `changed(old, new)` out, the values before kept for undo."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from kvstudio.case import evolve as evolving
from kvstudio.case import opening
from kvstudio.case import store as case_file
from kvstudio.case.values import Case
from kvstudio.devices.listed import named_by_server, option_names
from kvstudio.devices.values import Device, DeviceSource, Machine
from kvstudio.errors import KvStudioError
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.values import ModelInfo
from kvstudio.runlog.values import DevicePrinted
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
_FIX_DELAY_MS = 60
_UNDO_DEPTH = 200
_VISIBLE_BYTES = 32 * 1024**2


class Store(QObject):
    """Holds the case; only actions here replace it.

    `failed` carries a KvStudioError for the banner, `noted` a sentence, `opened` (path, kind, title, detail) for the
    recent list, `asked` something that needs the user's answer (a projector without a model, a folder).
    """

    changed = Signal(object, object)
    failed = Signal(object)
    noted = Signal(str)
    opened = Signal(object)
    asked = Signal(object)
    busy_changed = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._case = Case()
        self._before: list[Case] = []
        self._after: list[Case] = []
        self._merge_tag: str | None = None
        self._fixes_for: LaunchConfig | None = None
        self._fixes = task.Latest(_fixes_of, self._on_fixes, self.failed.emit)
        self.destroyed.connect(self._fixes.drop)
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
    def is_dragging(self) -> bool:
        """Whether the change just shown is part of a drag, which is drawn without motion."""
        return self._merge_tag is not None

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
        task.run(opening.open_path, path, done=self._on_opened, failed=self._on_open_failed, key=key)

    def open_text(self, text: str) -> None:
        """Open a pasted command line, path or log."""
        self.busy_changed.emit("Reading…")
        task.run(opening.open_text, text, done=self._on_opened, failed=self._on_open_failed, key="open")

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

    def show_model(self, model: ModelInfo, path: str) -> None:
        """Put a model on the page; the settings typed so far stay, but for those that belong to one model."""
        config = self._case.config.evolve(model_path=path, **dict.fromkeys(_OF_ONE_MODEL))
        changes: dict[str, Any] = {"model": model, "config": config}
        waiting_log = self._case.model is None and _same_file(self._case.config.model_path, path)
        if not waiting_log:
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
            kept = self._case.model if _same_file(self._case.config.model_path, config.model_path) else None
            model = what.model or kept
            if kept is not None and what.model is None:
                config = config.evolve(model_path=self._case.config.model_path)
            changes |= {"config": config, "model": model}
        others = self._devices_of_log(tuple(read.events))
        if others:
            changes |= {"what_if": others, "chosen": tuple(d.name for d in others)}
        self._replace(undo=True, **changes)
        self.opened.emit((what.path, "log", Path(what.path).name, f"log, {_short(read.diagnosis)}"))

    def _devices_of_log(self, events: tuple[Any, ...]) -> tuple[Device, ...]:
        """Devices the log names that are not this machine's, the last word on each taken."""
        printed: dict[str, DevicePrinted] = {}
        for event in events:
            if isinstance(event, DevicePrinted) and event.total_bytes is not None and not _is_host(event.name):
                (name,) = named_by_server(((event.name, event.description or ""),))
                printed[name] = replace(event, name=name)
        live = {d.name: d for d in (self._case.machine.devices if self._case.machine else ())}
        if all(_alike(live.get(p.name), p) for p in printed.values()):
            return ()
        return tuple(
            Device(
                p.name,
                p.name.rstrip("0123456789"),
                p.description,
                p.total_bytes,
                p.free_bytes if p.free_bytes is not None else p.total_bytes,
                DeviceSource.LOG,
            )
            for p in printed.values()
        )

    def _show_case(self, what: opening.OpenedCase) -> None:
        loaded = what.case
        self._remember(None)
        machine = self._case.machine
        if loaded.machine is not None and not _same_devices(loaded.machine, machine):
            # The case was made elsewhere: its devices stay as what-if ones beside this machine's.
            loaded = loaded.replace(what_if=_without_doubles(loaded.machine.devices + loaded.what_if))
        new = evolving.evolve_budget(
            loaded.replace(machine=machine, binary=self._case.binary, remembered=self._case.remembered),
            config=loaded.config,
        )
        self._show(new)
        title = new.model.name if new.model else Path(what.path).name
        self.opened.emit((what.path, "case", Path(what.path).name, f"case, {title}"))

    def _show_command(self, what: opening.OpenedCommand) -> None:
        changes: dict[str, Any] = {"config": what.config}
        if what.model is not None:
            changes["model"] = what.model
        elif what.config.model_path and not _same_file(what.config.model_path, self._case.config.model_path):
            changes["model"] = None
        elif self._case.model is not None:
            changes["config"] = what.config.evolve(model_path=self._case.config.model_path)
        if what.config.device is not None:
            changes["chosen"] = self._named(what.config.device)
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
        self._remember(None)
        kept = Case(machine=case.machine, binary=case.binary, chosen=case.chosen)
        self._show(kept.replace(remembered=case.remembered))

    # Editing -----------------------------------------------------------------------------------------------------

    def edit(self, changes: dict[str, Any]) -> None:
        """Replace settings by field name."""
        self._flush_live()
        self._merge_tag = None
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
        self._merge_tag = None
        self._fix_timer.start()

    def set_config(self, config: LaunchConfig) -> None:
        """Take settings read from an edited command line; a model it names anew is opened."""
        old = self._case.config
        if config.model_path and not _same_file(config.model_path, old.model_path):
            task.run(_with_model, config, done=self._on_opened, failed=self.failed.emit, key="open")
            return
        changes: dict[str, Any] = {"config": config}
        if config.device is not None and config.device != old.device:
            changes["chosen"] = self._named(config.device)
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
        chosen = tuple(
            d.name
            for d in self._case.devices
            if (d.name in self._case.chosen and d.name != name) or (on and d.name == name)
        )
        self._choose(chosen)

    def add_what_if(self, devices: tuple[Device, ...]) -> None:
        """Add devices that are not there; they are used at once."""
        taken = {d.name for d in self._case.devices}
        fresh = tuple(_renamed(d, taken) for d in devices)
        self._replace(
            undo=True, what_if=self._case.what_if + fresh, chosen=self._case.chosen + tuple(d.name for d in fresh)
        )

    def remove_what_if(self, name: str) -> None:
        """Take a what-if device away; when none is left, this machine's own devices are used again."""
        what_if = tuple(d for d in self._case.what_if if d.name != name)
        chosen = tuple(n for n in self._case.chosen if n != name)
        if not chosen and self._case.machine is not None:
            chosen = default_devices(self._case.machine)
        self._replace(undo=True, what_if=what_if, chosen=chosen)

    def add_rpc(self, servers: tuple[str, ...]) -> None:
        """Use the devices of RPC servers too (`--rpc`)."""
        self.edit({"rpc": tuple(dict.fromkeys((*(self._case.config.rpc or ()), *servers)))})

    def remove_rpc(self, name: str) -> None:
        """Do without the server that a device `RPC0[host:port]` belongs to."""
        server = name.partition("[")[2].rstrip("]")
        self.edit({"rpc": tuple(s for s in self._case.config.rpc or () if s != server) or None})

    def _named(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The known devices that `-dev` names mean, in their order."""
        spoken = {option: name for name, option in option_names(tuple(d.name for d in self._case.devices)).items()}
        known = {d.name for d in self._case.devices}
        return tuple(n for n in (spoken.get(n, n) for n in names) if n in known)

    def _choose(self, chosen: tuple[str, ...]) -> None:
        case = self._case
        live = tuple(d.name for d in case.machine.devices) if case.machine else ()
        what_if_used = any(d.name in chosen for d in case.what_if)
        ticked = tuple(n for n in live if n in chosen)
        if case.machine is None or what_if_used or ticked == default_devices(case.machine):
            device = None
        else:
            spoken = option_names(live)
            device = tuple(spoken[n] for n in ticked) or ("none",)
        self._replace(undo=True, chosen=chosen, config=case.config.evolve(device=device))

    def set_machine(self, machine: Machine) -> None:
        """New figures of the devices; the user's ticks stay, new devices are ticked as llama.cpp would use them."""
        old = self._case
        if old.machine is not None and _much_the_same(old.machine, machine):
            return
        before = {d.name for d in old.machine.devices} if old.machine else set()
        names = {d.name for d in machine.devices} | {d.name for d in old.what_if}
        chosen = tuple(n for n in old.chosen if n in names)
        fresh = {d.name for d in machine.devices} - before
        if fresh and not any(d.name in chosen for d in old.what_if):
            spoken = option_names(tuple(d.name for d in machine.devices))
            typed = old.config.device
            wanted = default_devices(machine)
            if typed is not None:
                wanted = tuple(n for n, option in spoken.items() if n in typed or option in typed)
            used = {n for n in wanted if n in fresh} | set(chosen)
            chosen = tuple(d.name for d in (*machine.devices, *old.what_if) if d.name in used)
        self._replace(undo=False, machine=machine, chosen=chosen)

    def set_binary(self, binary: Binary | None) -> None:
        """Use another llama.cpp program; its build decides rules and defaults."""
        if binary != self._case.binary:
            self._replace(undo=False, binary=binary)

    # Runs --------------------------------------------------------------------------------------------------------

    def add_run(self, run: Any) -> None:
        """Keep a finished test launch with its diagnosis."""
        self._replace(undo=False, runs=(*self._case.runs, run), diagnosis=run.diagnosis)

    def replace(self, **changes: Any) -> None:
        """Replace values of the case that no action above covers (a log's lines, the note)."""
        self._replace(undo=False, **changes)

    # Undo --------------------------------------------------------------------------------------------------------

    @property
    def can_undo(self) -> bool:
        return bool(self._before)

    @property
    def can_redo(self) -> bool:
        return bool(self._after)

    def undo(self) -> None:
        """The settings, devices and model before the last change; runs stay."""
        if self._before:
            self._after.append(self._case)
            self._go_to(self._before.pop())

    def redo(self) -> None:
        if self._after:
            self._before.append(self._case)
            self._go_to(self._after.pop())

    def _go_to(self, kept: Case) -> None:
        self._merge_tag = None
        now = self._case
        back = kept.replace(machine=now.machine, binary=now.binary, remembered=now.remembered)
        if back.model is now.model:
            back = back.replace(runs=now.runs, log=now.log, log_source=now.log_source, diagnosis=now.diagnosis)
        self._show(evolving.evolve_budget(back, config=back.config))

    def _remember(self, tag: str | None) -> None:
        if tag is None or tag != self._merge_tag:
            self._before.append(self._case)
            del self._before[:-_UNDO_DEPTH]
        self._merge_tag = tag
        self._after.clear()

    def _replace(self, undo: bool, tag: str | None = None, **changes: Any) -> None:
        try:
            new = evolving.evolve_budget(self._case, **changes)
        except KvStudioError as error:
            self.failed.emit(error)
            return
        if undo:
            self._remember(tag)
        self._show(new)

    def _show(self, new: Case) -> None:
        old, self._case = self._case, new
        self.changed.emit(old, new)
        changed = new.budget is not old.budget or new.diagnosis is not old.diagnosis
        # While a drag goes on they would compete with it for the processor, and be old at once.
        if changed and not self.is_dragging:
            self._fix_timer.start()

    # Fixes come a moment later ------------------------------------------------------------------------------------

    def _start_fixes(self) -> None:
        if self._case.budget is not None:
            self._fixes.ask(self._case)

    def _on_fixes(self, found: tuple[Case, Any, Any]) -> None:
        asked, fixes, fitted = found
        if self._case.config != asked.config or self._case.model is not asked.model:
            return
        self._fixes_for = asked.config
        if fixes != self._case.fixes or fitted != self._case.fitted:
            self._show(self._case.replace(fixes=fixes, fitted=fitted))


def _fixes_of(case: Case) -> tuple[Case, Any, Any]:
    return case, evolving.fixes_of(case), evolving.fit_of(case)


_FIELDS = tuple(LaunchConfig.__dataclass_fields__.keys() - {"program", "model_path", "env", "layout", "build"})


def default_devices(machine: Machine) -> tuple[str, ...]:
    """What llama.cpp uses when no device is named: all but integrated ones, and those when there is nothing else."""
    discrete = tuple(d.name for d in machine.devices if not d.integrated)
    return discrete or tuple(d.name for d in machine.devices)


def model_line(model: ModelInfo) -> str:
    """One line under a model's name: `Q4_K_M, 18.4 GiB, trained context 40960`."""
    from kvstudio.units import format_bytes

    parts = [model.file_type or "", format_bytes(model.size_bytes), f"trained context {model.n_ctx_train}"]
    return ", ".join(p for p in parts if p)


def _with_model(config: LaunchConfig) -> opening.OpenedCommand:
    try:
        return opening.OpenedCommand(config, opening.read_model(config.model_path))
    except KvStudioError as error:
        return opening.OpenedCommand(config, None, error)


def _same_file(one: str, other: str) -> bool:
    return bool(one) and os.path.basename(one) == os.path.basename(other)


def _same_devices(one: Machine, other: Machine | None) -> bool:
    def shape(machine: Machine) -> tuple[tuple[str, int | None], ...]:
        return tuple((d.name, d.total_bytes) for d in machine.devices)

    return other is not None and shape(one) == shape(other)


def _much_the_same(one: Machine, other: Machine) -> bool:
    """Whether nothing changed that anybody could see: a few MiB of free memory always come and go."""

    def still(a: Device, b: Device) -> bool:
        if a.free_bytes is None or b.free_bytes is None:
            return a == b
        moved = abs(a.free_bytes - b.free_bytes) >= _VISIBLE_BYTES
        return not moved and replace(a, free_bytes=b.free_bytes, processes=b.processes) == b

    devices = (*one.devices, one.host), (*other.devices, other.host)
    return len(devices[0]) == len(devices[1]) and all(map(still, *devices))


def _without_doubles(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    return tuple({d.name: d for d in devices}.values())


def _is_host(name: str) -> bool:
    return name.lower() in ("host", "cpu")


def _alike(live: Device | None, printed: DevicePrinted) -> bool:
    """Whether a printed device is the live one; totals are printed in whole MiB."""
    if live is None or live.total_bytes is None or printed.total_bytes is None:
        return False
    return abs(live.total_bytes - printed.total_bytes) <= 1024**2


def _renamed(device: Device, taken: set[str]) -> Device:
    """The device under a name that is free (`CUDA0` becomes `CUDA2` beside two others)."""
    name, number = device.name, 0
    stem = device.name.rstrip("0123456789") or device.name
    while name in taken:
        name = f"{stem}{number}"
        number += 1
    taken.add(name)
    return replace(device, name=name)


def _short(diagnosis: Any) -> str:
    """What a log shows, in a few words."""
    if diagnosis is None:
        return "read"
    text: str = diagnosis.title or str(diagnosis.outcome)
    return text[:1].lower() + text[1:] if not text[:2].isupper() else text
