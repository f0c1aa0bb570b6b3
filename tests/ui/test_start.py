"""Starting: answers without Qt, a clear word without a display, and nothing heavy before the first window."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvstudio.__main__ import display_complaint, main

TINY = str(Path(__file__).parent.parent / "data" / "headers" / "tiny.gguf")
HEAVY = ("numpy", "pyqtgraph", "pynvml", "psutil", "gguf", "jinja2", "http.client", "OpenGL")


def python(code: str, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "QT_QPA_PLATFORM": "offscreen", **environment}
    env = {name: value for name, value in env.items() if value}
    command = [sys.executable, "-c", code, *argv]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_answers_without_qt(flag):
    code = (
        "import sys\nfrom kvstudio.__main__ import main\n"
        f"try:\n    main(['{flag}'])\nfinally:\n    sys.stderr.write(str([m for m in sys.modules if 'PySide6' in m]))"
    )
    done = python(code)
    assert done.stdout.startswith(("usage: kvstudio", "kvstudio 0"))
    assert done.stderr == "[]"


def test_nothing_heavy_before_the_first_window():
    code = f"import sys\nimport kvstudio.ui.app\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    assert python(code).stdout.strip() == "[]"


def test_no_display_is_said_before_qt_aborts():
    done = python(
        "import sys\nfrom kvstudio.__main__ import main\nsys.exit(main([]))",
        QT_QPA_PLATFORM="",
        DISPLAY="",
        WAYLAND_DISPLAY="",
    )
    if sys.platform.startswith("linux"):
        assert done.returncode == 2
        assert "kvstudio-cli" in done.stderr
        assert "xvfb-run" in done.stderr


@pytest.mark.parametrize(
    ("environment", "platform"),
    [
        ({"QT_QPA_PLATFORM": "offscreen"}, "linux"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux"),
        ({}, "darwin"),
        ({}, "win32"),
    ],
)
def test_no_complaint_where_there_is_a_display(environment, platform):
    assert display_complaint(environment, platform) == ""


def test_a_missing_file_is_said(capsys):
    assert main(["/nowhere/x.gguf"]) == 2
    assert "x.gguf" in capsys.readouterr().err


def test_selftest_opens_a_file_and_ends(tmp_path):
    code = "import sys\nfrom kvstudio.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    done = python(code, "--selftest", TINY)
    assert done.returncode == 0, done.stderr


def test_selftest_says_what_cannot_be_opened(tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x09\x00\x00\x00")
    code = "import sys\nfrom kvstudio.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    done = python(code, "--selftest", str(bad))
    assert done.returncode == 1
    assert "bad.gguf" in done.stderr


_LEFT = """
import sys, time
from PySide6.QtCore import QCoreApplication
from kvstudio.ui import app
from kvstudio.work import task

def leave():
    task.run(time.sleep, 600)
    QCoreApplication.quit()

app._LAST_JOBS_MS, app._CALM_AFTER_MS, app.calm_collector = 100, 0, leave
sys.exit(app.run())
"""


def test_the_program_ends_although_something_still_computes(tmp_path):
    # The job would go on for a minute and more, and python() waits for ninety seconds.
    ended = python(_LEFT, XDG_CONFIG_HOME=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
