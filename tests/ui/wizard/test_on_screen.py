"""A whole fix walk on a screen of its own: real mouse and keyboard events, the real llama-server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NEEDED = ("xvfb-run", "openbox", "xdotool", "pgrep")
PATIENCE_S = 240


@pytest.mark.rig
@pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason="needs " + ", ".join(NEEDED))
def test_a_walk_by_mouse_and_keyboard_ends_verified_and_leaves_nothing_running():
    walk = f"openbox & {sys.executable} packaging/wizard_check.py; code=$?; kill $!; exit $code"
    done = subprocess.run(
        ("xvfb-run", "-a", "-s", "-screen 0 1400x1000x24", "sh", "-c", walk),
        cwd=ROOT,
        env=os.environ | {"XDG_CURRENT_DESKTOP": "GNOME"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout
    assert "verified after" in done.stdout
