"""Start the window; `--help` and `--version` are answered without Qt."""

import argparse
import ctypes
import os
import sys
from collections.abc import Mapping, Sequence

import kvstudio

_NO_DISPLAY = """kvstudio: there is no display to open a window on.
  Over SSH or in a container, the same answers are on the terminal:  kvstudio-cli --help
  To open the window all the same, start it on a virtual display:    xvfb-run -a kvstudio
"""
_NO_XCB_CURSOR = """kvstudio: the library libxcb-cursor is missing, without which Qt opens no window on X11.
  Debian, Ubuntu:  apt install libxcb-cursor0
  Fedora:          dnf install xcb-util-cursor
  The same answers are on the terminal:  kvstudio-cli --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and open the window; returns the exit status, 2 for what cannot be started."""
    given = _parser().parse_args(argv)
    missing = [path for path in given.files if not os.path.exists(path)]
    if missing:
        sys.stderr.write(f"kvstudio: no such file: {missing[0]}\n")
        return 2
    if given.selftest:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    complaint = display_complaint(os.environ, sys.platform)
    if complaint:
        sys.stderr.write(complaint)
        return 2
    from kvstudio.ui.app import run

    files = tuple(os.path.abspath(path) for path in given.files)
    return run(files, devices=given.devices, selftest=given.selftest, sample=given.sample)


def display_complaint(environment: Mapping[str, str], platform: str) -> str:
    """What to tell a user before Qt ends the process for want of a display; empty when there is one."""
    if not platform.startswith("linux") or environment.get("QT_QPA_PLATFORM"):
        return ""
    if environment.get("WAYLAND_DISPLAY"):
        return ""
    if not environment.get("DISPLAY"):
        return _NO_DISPLAY
    try:
        ctypes.CDLL("libxcb-cursor.so.0")
    except OSError:
        # A bundle brings its own copy beside Qt, which the loader finds later.
        return "" if getattr(sys, "frozen", False) else _NO_XCB_CURSOR
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvstudio",
        description="See what a GGUF model needs on each device, and why a llama.cpp launch was refused.",
        epilog="example:\n  kvstudio ~/models/Qwen3-32B-Q4_K_M.gguf\n\nwithout a window: kvstudio-cli --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="a model, a log, a saved case, a projector or a folder"
    )
    parser.add_argument("--devices", metavar="FILE.json", help="use saved devices instead of this machine's")
    parser.add_argument("--sample", action="store_true", help="open the sample model and server, where installed")
    parser.add_argument("--selftest", action="store_true", help="build the window unseen, open FILE, exit")
    parser.add_argument("--version", action="version", version=f"kvstudio {kvstudio.__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
