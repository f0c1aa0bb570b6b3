"""Builds the one-folder program with PyInstaller and starts what came out: on a real file, in a real window."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
SAMPLE = ROOT / "tests" / "data" / "headers" / "tiny.gguf"
LIMIT_MB = 130


def build() -> Path:
    """Run PyInstaller; the folder with both programs."""
    command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "ERROR"]
    command += ["--distpath", str(DIST), "--workpath", str(ROOT / "build"), str(ROOT / "packaging" / "kvstudio.spec")]
    subprocess.run(command, cwd=ROOT, check=True)
    strip(DIST / "kvstudio")
    return DIST / "kvstudio"


def strip(folder: Path) -> None:
    """Take the symbols out of Python's own libraries; an interpreter built from source carries tens of MB of them.

    Qt's libraries come stripped, and those whose library path was rewritten for a wheel must not be touched.
    """
    tool = shutil.which("strip")
    if tool is None or not sys.platform.startswith("linux"):
        return
    inside = folder / "_internal"
    found = [*inside.glob("libpython*.so*"), *inside.glob("python3*/lib-dynload/*.so")]
    for path in found:
        subprocess.run([tool, "--strip-unneeded", str(path)], check=True)


def size_mb(folder: Path) -> float:
    """Size of the folder in MB (10^6 bytes), links not followed."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink()) / 1e6


def check_terminal(folder: Path) -> None:
    """`kvstudio-cli` answers without Qt, and reads a file."""
    cli = str(folder / "kvstudio-cli")
    subprocess.run([cli, "--version"], check=True, timeout=60)
    done = subprocess.run(
        [cli, "inspect", str(SAMPLE), "--json"], check=True, timeout=60, capture_output=True, text=True
    )
    json.loads(done.stdout)


def check_window(folder: Path, shot: Path) -> float | None:
    """Start the window under Xvfb on the sample and take a picture; seconds until the window was there."""
    if not shutil.which("Xvfb") or not shutil.which("xdotool"):
        print("no Xvfb or xdotool here: the window was not started")
        return None
    display = f":{200 + os.getpid() % 700}"
    environ = os.environ | {"DISPLAY": display, "XDG_CURRENT_DESKTOP": "GNOME", "LC_ALL": "C.UTF-8"}
    environ.pop("QT_QPA_PLATFORM", None)
    with tempfile.TemporaryDirectory() as home:
        environ |= {"HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home}
        server = subprocess.Popen(["Xvfb", display, "-screen", "0", "1280x820x24", "-nolisten", "tcp"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            time.sleep(1.0)
            began = time.monotonic()
            program = subprocess.Popen([str(folder / "kvstudio"), str(SAMPLE)], env=environ)
            try:
                search = ["xdotool", "search", "--sync", "--onlyvisible", "--name", "kvstudio"]
                subprocess.run(search, env=environ, check=True, timeout=60, capture_output=True)
                seconds = time.monotonic() - began
                time.sleep(2.0)
                if program.poll() is not None:
                    raise SystemExit(f"the built window ended by itself with code {program.returncode}")
                if shutil.which("import"):
                    subprocess.run(["import", "-window", "root", str(shot)], env=environ, check=True, timeout=60)
            finally:
                program.terminate()
                program.wait(timeout=20)
        finally:
            server.terminate()
            server.wait(timeout=20)
    return seconds


def main() -> int:
    """Build, and with --check start both programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="start the built programs too")
    parser.add_argument("--screenshot", type=Path, default=ROOT / "build" / "bundle.png")
    args = parser.parse_args()
    folder = build()
    size = size_mb(folder)
    print(f"{folder}: {size:.0f} MB (limit {LIMIT_MB} MB)")
    if args.check:
        check_terminal(folder)
        seconds = check_window(folder, args.screenshot)
        if seconds is not None:
            print(f"window after {seconds:.2f} s, picture in {args.screenshot}")
    return 0 if size <= LIMIT_MB else 1


if __name__ == "__main__":
    sys.exit(main())
