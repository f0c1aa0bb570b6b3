"""kvstudio-cli devices: what is here and how much of it is free."""

import argparse

from kvstudio.case import programs
from kvstudio.cli.inputs import live_machine
from kvstudio.cli.output import DONE, emit_json, emit_table, emit_words, message
from kvstudio.devices.json import to_json
from kvstudio.devices.values import Device
from kvstudio.launch.binary import find
from kvstudio.places import data_dir
from kvstudio.units import format_bytes


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--binary", metavar="FILE", help="llama.cpp program to ask (default: the first one found)")


def run(args: argparse.Namespace) -> int:
    path = args.binary or next(iter(find()), None)
    machine = live_machine(programs.inspect(path, data_dir()) if path else None)
    for note in machine.notes:
        message(note)
    if args.json:
        emit_json(to_json(machine))
        return DONE
    emit_table([_row(device) for device in (*machine.devices, machine.host)], right=(1, 2), heads=False)
    if not machine.devices:
        emit_words("no GPU found: llama.cpp would run on the CPU")
    return DONE


def _row(device: Device) -> list[str]:
    free = "unknown" if device.free_bytes is None else f"{format_bytes(device.free_bytes)} free"
    total = "unknown" if device.total_bytes is None else f"of {format_bytes(device.total_bytes)}"
    busy = ", ".join(f"{p.name} ({p.pid})" + (f" {format_bytes(p.bytes)}" if p.bytes else "") for p in device.processes)
    return [device.name, free, total, device.description, device.reason or busy]
