"""What a command of the terminal works on: the typed command line, the model behind it, devices and binary."""

import argparse
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PureWindowsPath

from kvstudio.budget.extra_files import read_extras
from kvstudio.budget.solve import Launch
from kvstudio.case import overhead, programs
from kvstudio.cli.doubts import doubts
from kvstudio.cli.output import message
from kvstudio.devices.probe import probe
from kvstudio.devices.snapshot import load as load_snapshot
from kvstudio.devices.typed import parse_device
from kvstudio.devices.values import Device, Machine
from kvstudio.errors import ConfigError, KvStudioError
from kvstudio.header.hub import find_repo_model
from kvstudio.header.reader import read
from kvstudio.launch.argv import parse_argv, split_command
from kvstudio.launch.binary import Binary, find, list_devices
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.flags import program_name
from kvstudio.launch.rpc import unreachable
from kvstudio.model.describe import describe
from kvstudio.model.values import ModelInfo
from kvstudio.places import data_dir


@dataclass(frozen=True, slots=True)
class Inputs:
    """`devices` are the ones to be used, in llama.cpp's order; `host` is None when devices were typed, since the RAM of
    this machine says nothing about theirs. `doubts`: what of the command line will not do what was meant."""

    config: LaunchConfig
    model: ModelInfo
    devices: tuple[Device, ...]
    host: Device | None
    machine: Machine | None
    binary: Binary | None
    build: int | None
    overhead: Mapping[str, int] | None = None
    doubts: tuple[str, ...] = ()

    @property
    def launch(self) -> Launch:
        """All of it with the launch's other files (draft model, projector, adapters), to be estimated or solved."""
        return Launch(
            self.model, self.config, self.devices, self.host, self.build, self.overhead, read_extras(self.config)
        )


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """The options that say which devices a budget is for."""
    parser.add_argument("--device", action="append", default=[], metavar="NAME=TOTAL[/FREE]",
                        help="a device to plan for, repeatable: CUDA0=24GiB/22GiB; Host=64GiB for RAM")  # fmt: skip
    parser.add_argument("--devices", metavar="FILE", help="devices saved by `kvstudio-cli devices --json`")
    parser.add_argument("--cpu-only", action="store_true", help="no device at all")
    parser.add_argument("--build", metavar="bNNNNN", type=parse_build, help="llama.cpp build whose rules apply")


def parse_build(text: str) -> int:
    """`b11434` or `11434`."""
    digits = text[1:] if text[:1] in "bB" else text
    if not digits.isdigit():
        raise argparse.ArgumentTypeError(f"not a build: {text!r}; write it like b11434")
    return int(digits)


def parse_command(tokens: list[str]) -> LaunchConfig:
    """The llama.cpp command line after `--`.

    Raises: ConfigError when there is none or it cannot be understood.
    """
    words = tokens[1:] if tokens[:1] == ["--"] else tokens
    if not words:
        raise ConfigError(
            "no llama.cpp command line was given.", "Put it after --, like: -- llama-server -m model.gguf -c 32768"
        )
    if len(words) == 1 and any(letter.isspace() for letter in words[0]):
        # The whole command line in one pair of quotes, where no shell has seen the ~ of a path.
        words = [os.path.expanduser(word) if word.startswith("~/") else word for word in split_command(words[0])]
    if words[0].lower().endswith(".gguf"):
        raise ConfigError(
            f"{words[0]} is a model, not a program of llama.cpp.", f"Write it like: -- llama-server -m {words[0]}"
        )
    return parse_argv(tuple(words))


def load_model(config: LaunchConfig) -> ModelInfo:
    """Header and description of the config's model, kept for the next call while the file stays the same.

    Raises: ConfigError without a model; HeaderError for a file that cannot be read.
    """
    if config.model_path:
        return read_model(config.model_path)
    if config.hf_repo:
        path = find_repo_model(config.hf_repo, config.hf_file, env=dict(os.environ) | dict(config.env))
        if path is None:
            raise ConfigError(
                f"-hf {config.hf_repo}: the model has not been downloaded.", "Download it, or add -m FILE."
            )
        return read_model(path)
    raise ConfigError("the command line names no model.", "Add -m FILE.gguf.")


def read_model(path: str) -> ModelInfo:
    """A model by its path (any shard).

    Raises: HeaderError; ConfigError for a path that only another system can have.
    """
    if os.name != "nt" and PureWindowsPath(path).drive and not os.path.exists(path):
        raise ConfigError(f"{path} is a path of Windows, and not on this machine.", "Name the file by its path here.")
    try:
        status = os.stat(path)
        stamp = (status.st_size, status.st_mtime_ns)
    except OSError:
        stamp = (0, 0)  # the reader says better what is wrong
    return _read_model(os.path.abspath(path), stamp)


@lru_cache(maxsize=64)
def _read_model(path: str, _stamp: tuple[int, int]) -> ModelInfo:
    return describe(read(path))


def choose_binary(config: LaunchConfig) -> Binary | None:
    """The program the command names: the path itself, else PATH, else any known place; None when there is none."""
    named = config.program
    if os.path.dirname(named):
        return programs.inspect(named, data_dir())
    on_path = shutil.which(named)
    name = program_name(named)
    path = on_path or next((path for path in find() if program_name(path) == name), None)
    return programs.inspect(path, data_dir()) if path else None


def named_here(config: LaunchConfig) -> Binary | None:
    """The program whose path the command gives, where it is one of this machine: its build decides even for devices
    that were typed. A command from elsewhere names one that is not here."""
    if not os.path.dirname(config.program) or not os.path.isfile(config.program):
        return None
    try:
        return programs.inspect(config.program, data_dir())
    except KvStudioError:
        return None


_RPC = "RPC server"
_NO_LIST = "the program does not list its devices"


def live_machine(
    binary: Binary | None, env: tuple[tuple[str, str], ...] = (), rpc: tuple[str, ...] | None = None
) -> Machine:
    """Devices as the binary lists them, merged with what the drivers know; a binary that fails is only a note.

    `rpc` servers that do not answer are left out, each with a note.
    """
    listed, notes = None, []
    away = unreachable(rpc) if rpc else ()
    notes += [f"{_RPC} {server}: {reason}" for server, reason in away]
    if binary is not None:
        try:
            answering = tuple(s for s in rpc or () if s not in dict(away))
            listed = list_devices(binary, env, rpc=answering)
        except KvStudioError as error:
            notes.append(f"{_NO_LIST}: {error.message}")
    machine = probe(listed)
    return replace(machine, notes=(*machine.notes, *notes)) if notes else machine


def typed_devices(args: argparse.Namespace) -> tuple[tuple[Device, ...], Device | None] | None:
    """Devices from the options, and the host if one was typed; None when no option names any.

    Raises: ConfigError for options that contradict each other: one of them would be ignored.
    """
    devices, host = _split_host(args.device)
    if args.devices and (args.device or args.cpu_only):
        other = "--device" if args.device else "--cpu-only"
        raise ConfigError(f"--devices and {other} both say which devices there are.", "Leave one of them away.")
    if args.cpu_only and devices:
        raise ConfigError(f"--cpu-only leaves no place for --device {devices[0].name}.", "Leave one of them away.")
    if args.cpu_only:
        return (), host or probe(None).host
    if args.devices:
        machine = load_snapshot(args.devices)
        return machine.devices, machine.host
    return (devices, host) if args.device else None


def _split_host(texts: Sequence[str]) -> tuple[tuple[Device, ...], Device | None]:
    devices = tuple(parse_device(text) for text in texts)
    names = [device.name for device in devices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ConfigError(
            f"--device {twice} is given twice.", "Each device needs its own name, as llama.cpp prints it."
        )
    host = next((device for device in devices if device.name in ("Host", "CPU")), None)
    return tuple(device for device in devices if device is not host), host


def gather(args: argparse.Namespace, *, need_binary: bool = False) -> Inputs:
    """Everything a budget needs, from the options and the command line of `args.command`; what is doubtful in them is
    told on stderr."""
    config = parse_command(args.command)
    model = load_model(config)
    typed = typed_devices(args)
    binary = choose_binary(config) if need_binary or typed is None else named_here(config)
    build = args.build or config.build or (binary.build if binary else None)
    if typed is not None:
        devices, host = typed
        said = _told(config, devices, binary, typed=True)
        return Inputs(config, model, devices, host, None, binary, build, doubts=said)
    machine = live_machine(binary, config.env, config.rpc)
    for note in machine.notes:
        if note.startswith((_RPC, _NO_LIST)):
            message(f"warning: {note}")
    said = _told(config, machine.devices, binary, typed=False)
    learned = overhead.load(data_dir()).of(machine.devices, build) or None
    return Inputs(config, model, machine.devices, machine.host, machine, binary, build, learned, said)


def _told(config: LaunchConfig, devices: tuple[Device, ...], binary: Binary | None, *, typed: bool) -> tuple[str, ...]:
    said = doubts(config, devices, binary, typed=typed)
    for doubt in said:
        message(f"warning: {doubt}")
    return said
