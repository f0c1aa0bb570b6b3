"""`work` speaks QtCore only: it runs without a display and never touches a widget."""

import ast
from pathlib import Path

import pytest

import kvstudio.work

FILES = sorted(Path(kvstudio.work.__file__).parent.rglob("*.py"))


def qt_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("PySide6"):
            names = [alias.name for alias in node.names]
            found |= {f"PySide6.{name}" for name in names} if node.module == "PySide6" else {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("PySide6")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_only_qtcore(path):
    assert qt_modules(path) <= {"PySide6.QtCore"}


def test_the_room_is_not_empty():
    assert any(qt_modules(path) for path in FILES)
