"""Every action with its key: in the menu bar where the desktop has one, and behind the help button everywhere."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QMenu

from kvstudio.ui.text import tr
from kvstudio.ui.theme import Scheme

if TYPE_CHECKING:
    from kvstudio.ui.main_window import MainWindow

_SCHEMES = ((Scheme.SYSTEM, "System"), (Scheme.LIGHT, "Light"), (Scheme.DARK, "Dark"))


def build(window: "MainWindow") -> dict[str, QAction]:
    """Make the menus of a window; returns its actions by name."""
    actions: dict[str, QAction] = {}

    def action(name: str, text: str, slot: Callable[[], object], *keys: str) -> QAction:
        made = QAction(text, window)
        made.setObjectName(name)
        made.setShortcuts([QKeySequence(key) for key in keys])
        made.triggered.connect(lambda _=False: slot())
        actions[name] = made
        window.addAction(made)
        return made

    file = QMenu(tr("File"), window)
    file.addAction(action("open", tr("Open…"), window.ask_open, "Ctrl+O"))
    file.addAction(action("paste", tr("Paste command, log or path"), window.paste, "Ctrl+V", "Ctrl+Shift+V"))
    file.addSeparator()
    file.addAction(action("save", tr("Save case…"), window.ask_save, "Ctrl+S"))
    file.addAction(action("close", tr("Close case"), window.store.close_case, "Ctrl+W"))
    file.addSeparator()
    file.addAction(action("quit", tr("Quit"), window.close, "Ctrl+Q"))

    edit = QMenu(tr("Edit"), window)
    edit.addAction(action("undo", tr("Undo"), window.store.undo, "Ctrl+Z"))
    edit.addAction(action("redo", tr("Redo"), window.store.redo, "Ctrl+Shift+Z", "Ctrl+Y"))
    edit.addSeparator()
    edit.addAction(action("copyCommandAction", tr("Copy command"), window.copy_command, "Ctrl+Shift+C"))
    edit.addAction(action("editCommandAction", tr("Edit command"), window.edit_command, "Ctrl+L"))
    edit.addAction(action("resetAction", tr("Reset settings"), window.store.reset_settings))
    edit.addAction(action("whatIfAction", tr("Add what-if device…"), window.add_what_if, "Ctrl+D"))

    run = QMenu(tr("Run"), window)
    run.addAction(action("launch", tr("Test launch"), window.launch, "F5"))
    run.addAction(action("stop", tr("Stop"), window.stop, "Shift+F5"))
    run.addAction(action("check", tr("Check with llama.cpp"), window.windows.check, "F6"))
    run.addSeparator()
    run.addAction(action("fix", tr("Fix…"), window.windows.fix, "F8"))
    run.addAction(action("report", tr("Report…"), window.windows.report, "F9"))

    run.addSeparator()
    run.addAction(action("history", tr("History…"), window.windows.history, "Ctrl+H"))

    view = QMenu(tr("View"), window)
    view.addMenu(_schemes(window))

    help_menu = QMenu(tr("Help"), window)
    help_menu.addAction(action("help", tr("Help and keys"), window.windows.help, "F1"))

    menus = (file, edit, run, view)
    if sys.platform == "darwin":
        for menu in (*menus, help_menu):
            window.menuBar().addMenu(menu)
    behind = QMenu(window)
    behind.addAction(actions["help"])
    behind.addSeparator()
    for menu in menus:
        behind.addMenu(menu)
    behind.addSeparator()
    behind.addAction(actions["quit"])
    window.toolbar.set_menu(behind)
    return actions


def _schemes(window: "MainWindow") -> QMenu:
    menu = QMenu(tr("Colour scheme"), window)
    group = QActionGroup(menu)
    for scheme, words in _SCHEMES:
        choice = QAction(tr(words), menu)
        choice.setObjectName(f"scheme_{scheme.value}")
        choice.setCheckable(True)
        choice.setChecked(scheme is window.preferences.scheme)
        choice.triggered.connect(lambda _=False, scheme=scheme: window.set_scheme(scheme))
        group.addAction(choice)
        menu.addAction(choice)
    return menu
