"""The report before it leaves: what is in it, how it reads, what is hidden; then copy or save."""

import os
import platform
from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import QStandardPaths, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from kvstudio.advise.record import Record
from kvstudio.case import store
from kvstudio.case.values import Case
from kvstudio.errors import KvStudioError
from kvstudio.report import archive, markdown, redact, text
from kvstudio.report.build import build, hide_selection
from kvstudio.report.save import save_text
from kvstudio.report.values import Identity, Report
from kvstudio.ui import theme
from kvstudio.ui.text import tr
from kvstudio.ui.theme import Size, Space, Step, Weight
from kvstudio.ui.widgets.basic import (
    ElidedLabel,
    Icon,
    Label,
    Rule,
    Surface,
    make_primary,
    push_button,
)
from kvstudio.ui.widgets.segmented import SegmentedSwitch
from kvstudio.ui.widgets_run.report_files import FileList
from kvstudio.ui.widgets_run.report_lists import FieldList, RedactionList
from kvstudio.ui.widgets_run.report_preview import ReportPreview
from kvstudio.units import format_bytes
from kvstudio.work import task

MARKDOWN, TEXT, ZIP = "markdown", "text", "zip"
_HEAD = 64
_SUFFIX = {MARKDOWN: ".md", TEXT: ".txt", ZIP: ".zip"}


def report_of(case: Case, identity: Identity, walk: Record | None = None) -> Report:
    """The report of what is on screen: the last run when its log is, else a log from elsewhere, else the settings.

    `walk`: the fix walk whose controlled runs belong to it.
    """
    last = case.runs[-1] if case.runs else None
    own = last is not None and (not case.log or case.log_source == (last.log_path or ""))
    return build(case, last if own else None, identity=identity, walk=walk)


class ReportDialog(QDialog):
    """The report of a case, or of `show_report`. `shown` once there is one, `saved` with the path of a written file.

    Whatever takes longer with a longer log (filling, finding what to hide, rendering) is done in the pool.
    """

    shown = Signal()
    saved = Signal(str)

    def __init__(self, case: Case | None = None, parent: QWidget | None = None, *, walk: Record | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("reportDialog")
        self.setWindowTitle(tr("Report"))
        self._report: Report | None = None
        self._case: Mapping[str, Any] | None = None
        self._picture: bytes | None = None
        self._text: str | None = None
        self._wanted_copy = False
        self._edited_format = ""
        self._folder = ""
        self._build()
        self.resize(1280, 820)
        self.setMinimumSize(920, 520)
        if case is not None:
            self._subtitle.setText(tr("Collecting…"))
            self._offer(False)
            identity = redact.identity_from(os.environ, platform.node(), os.path.expanduser("~"))
            plain = store.to_json(case)
            task.run(
                report_of,
                case,
                identity,
                walk,
                done=lambda report: self.show_report(report, plain, self._picture),
                failed=self._on_failed,
                key=self._key("build"),
            )

    def _build(self) -> None:
        self.switch = SegmentedSwitch(
            ((MARKDOWN, tr("Upstream issue")), (TEXT, tr("Plain text")), (ZIP, tr("Zip"))), self
        )
        self.switch.picked.connect(lambda _: self._on_format())
        self._subtitle = ElidedLabel(role="muted")
        titles = QVBoxLayout()
        titles.setSpacing(Space.XS)
        titles.addStretch(1)
        titles.addWidget(Label(tr("Report"), Step.TITLE, Weight.DemiBold))
        titles.addWidget(self._subtitle)
        titles.addStretch(1)
        head = Surface()
        head.setFixedHeight(_HEAD)
        head_row = QHBoxLayout(head)
        head_row.setContentsMargins(Space.CANVAS_MARGIN, 0, Space.CANVAS_MARGIN, 0)
        head_row.addLayout(titles, 1)
        head_row.addSpacing(Space.L)
        head_row.addWidget(self.switch)

        self.fields = FieldList()
        self.redactions = RedactionList()
        self.redactions.switched.connect(self._on_switched)
        self.redactions.hide_requested.connect(self._on_hide)
        self.preview = ReportPreview()
        self.preview.selectionChanged.connect(self._on_selection)
        self.editor = QPlainTextEdit()
        self.editor.setObjectName("reportEditor")
        self.editor.setFrameShape(QFrame.Shape.NoFrame)
        self.editor.setFont(theme.mono())
        self.editor.document().setDocumentMargin(Space.CANVAS_MARGIN)
        self.editor.setAccessibleName(tr("Text of the report"))
        self.editor.selectionChanged.connect(self._on_selection)
        self.files = FileList()
        self._pages = QStackedWidget()
        for page in (self.preview, self.editor, self.files):
            self._pages.addWidget(page)
        body = QHBoxLayout()
        body.setSpacing(0)
        body.addWidget(self.fields)
        body.addWidget(Rule(vertical=True))
        body.addWidget(self._pages, 1)
        body.addWidget(Rule(vertical=True))
        body.addWidget(self.redactions)

        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(head)
        layout.addWidget(Rule())
        layout.addLayout(body, 1)
        layout.addWidget(Rule())
        layout.addWidget(self._build_foot())

    def _build_foot(self) -> QWidget:
        self._state = Icon("info", "muted")
        self._state.hide()
        self._said = ElidedLabel(step=Step.SMALL, role="muted")
        self.close_button = push_button(tr("Close"), name="reportClose")
        self.edit_button = push_button(tr("Edit text"), "edit", name="reportEdit")
        self.save_button = push_button(tr("Save as…"), "save", name="reportSave")
        self.copy_button = push_button(tr("Copy Markdown"), "copy", primary=True, name="reportCopy")
        self.close_button.clicked.connect(self.reject)
        self.edit_button.clicked.connect(self._on_edit)
        self.save_button.clicked.connect(self._on_save)
        self.copy_button.clicked.connect(self.copy)
        for button in (self.close_button, self.edit_button, self.save_button):
            button.setAutoDefault(False)
        self.copy_button.setDefault(True)
        foot = Surface()
        foot.setFixedHeight(Size.FOOT)
        row = QHBoxLayout(foot)
        row.setContentsMargins(Space.CANVAS_MARGIN, 0, Space.CANVAS_MARGIN, 0)
        row.setSpacing(Space.S)
        row.addWidget(self._state)
        row.addWidget(self._said, 1)
        for button in (self.close_button, self.edit_button, self.save_button, self.copy_button):
            row.addWidget(button)
        return foot

    def show_report(self, report: Report, case: Mapping[str, Any] | None = None, picture: bytes | None = None) -> None:
        """Show it. For the zip: `case` as plain JSON values, `picture` a PNG of the chart."""
        self._case, self._picture = case, picture
        self._set_editing(False)
        self._subtitle.setText(
            tr("{}. Nothing leaves this machine until you copy or save it.").format(
                text.hidden(report.subtitle.rstrip("."), report)
            )
        )
        self._show(report)
        self.preview.setFocus()
        self.shown.emit()

    def show_picture(self, picture: bytes) -> None:
        """A PNG of the chart, for the zip."""
        self._picture = picture
        if self._report is not None and self.switch.current() == ZIP:
            self._render()

    @property
    def report(self) -> Report | None:
        """The report as it is switched now."""
        return self._report

    @property
    def editing(self) -> bool:
        return self._pages.currentWidget() is self.editor

    def text(self) -> str:
        """What would be copied or saved as text now; empty while it is still being written."""
        return self.editor.toPlainText() if self.editing else self._text or ""

    def copy(self) -> None:
        """Put the text on the clipboard, as soon as there is one."""
        if self.switch.current() == ZIP:
            self._on_save()
        elif not self.editing and self._text is None:
            self._wanted_copy = True
        else:
            QGuiApplication.clipboard().setText(self.text())
            self._say(tr("Copied, {}").format(format_bytes(len(self.text().encode()))), "check-circle", "good")

    def save_to(self, path: str) -> None:
        """Write the file in the pool; how it went is said at the foot."""
        if self._report is None:
            return
        self.save_button.setEnabled(False)
        if self.switch.current() == ZIP:
            call: tuple[Any, ...] = (archive.write, self._report, path, self._case, self._picture)
        else:
            call = (save_text, path, self.text())
        task.run(*call, done=lambda _: self._on_saved(path), failed=self._on_failed, key=self._key("save"))

    def said(self) -> str:
        """The line at the foot."""
        return self._said.text()

    def done(self, result: int) -> None:
        for what in ("build", "render", "hide", "save"):
            task.forget(self._key(what))
        super().done(result)

    def _key(self, what: str) -> str:
        return f"report.{what}.{id(self)}"

    def _show(self, report: Report) -> None:
        self._report = report
        values = tuple(text.hidden(f.value or "", report) for f in report.fields)
        self.fields.show_fields(report, values)
        self.redactions.show_redactions(report)
        self._show_page()

    def _show_page(self) -> None:
        report = self._report
        if report is None:
            return
        chosen = self.switch.current()
        if not self.editing:
            self._pages.setCurrentWidget(self.files if chosen == ZIP else self.preview)
            if chosen != ZIP:
                self.preview.show_report(report, headings=chosen == MARKDOWN)
            self._render()
        labels = {MARKDOWN: tr("Copy Markdown"), TEXT: tr("Copy text"), ZIP: tr("Save zip…")}
        self.copy_button.setText(labels[chosen])
        self.copy_button.setProperty("iconName", "save" if chosen == ZIP else "copy")
        make_primary(self.copy_button, True)
        self.save_button.setVisible(chosen != ZIP)
        self.edit_button.setVisible(chosen != ZIP)
        self.edit_button.setText(tr("Discard edits") if self.editing else tr("Edit text"))
        self.redactions.set_switchable(not self.editing)
        self._on_selection()
        if self.editing:
            self._say_size()

    def _render(self) -> None:
        report, chosen = self._report, self.switch.current()
        assert report is not None
        self._text = None
        self._offer(False)
        self._say(tr("Writing…"))
        if chosen == ZIP:
            call: tuple[Any, ...] = (archive.contents, report, self._case, self._picture)
        else:
            call = (text.render if chosen == TEXT else markdown.render, report)
        task.run(*call, done=self._on_rendered, failed=self._on_failed, key=self._key("render"))

    def _on_rendered(self, result: Any) -> None:
        self._offer(True)
        if isinstance(result, str):
            self._text = result
        else:
            self.files.show_files(result)
        self._say_size()
        if self._wanted_copy:
            self._wanted_copy = False
            self.copy()

    def _offer(self, on: bool) -> None:
        for button in (self.edit_button, self.save_button):
            button.setEnabled(on)
        self.copy_button.setEnabled(on or self._report is not None)

    def _say_size(self) -> None:
        report = self._report
        if report is None:
            return
        if self.switch.current() == ZIP:
            size = sum(len(data) for _, data in self.files.files)
            lines = tr("{} log lines in the zip").format(len(report.log))
        else:
            shown = self.text()
            size = len(shown.encode())
            whole = "left out here" not in shown and "characters left out" not in shown
            lines = tr("{} log lines attached whole") if whole else tr("{} log lines, cut to fit; the zip has them all")
            lines = lines.format(len(report.log)) if report.log else tr("No log")
        self._say(f"{lines}, {format_bytes(size)}")

    def _say(self, words: str, icon: str = "", role: str = "muted") -> None:
        self._state.setVisible(bool(icon))
        if icon:
            self._state.show_icon(icon, role)
        self._said.set_role(role if role == "bad" else "muted")
        self._said.setText(words)

    def _set_editing(self, on: bool) -> None:
        self._edited_format = self.switch.current() if on else ""
        if on:
            self.editor.setPlainText(self.text())
            self._pages.setCurrentWidget(self.editor)
            self.editor.setFocus()
        else:
            self._pages.setCurrentWidget(self.preview)

    def _on_edit(self) -> None:
        self._set_editing(not self.editing)
        self._show_page()

    def _on_format(self) -> None:
        if self.editing:
            self._set_editing(False)
        self._show_page()

    def _on_switched(self, token: str, hidden: bool) -> None:
        if self._report is not None:
            self._show(self._report.switched(token, hidden))

    def _on_selection(self) -> None:
        page = self._pages.currentWidget()
        if page is self.preview:
            chosen = bool(self.preview.selected_texts())
        else:
            chosen = page is self.editor and self.editor.textCursor().hasSelection()
        self.redactions.hide_button.setEnabled(chosen)

    def _on_hide(self) -> None:
        if self._report is None:
            return
        if self.editing:
            self._hide_in_editor()
            return
        pieces = self.preview.selected_texts()
        task.run(_hidden, self._report, pieces, done=self._show, failed=self._on_failed, key=self._key("hide"))

    def _hide_in_editor(self) -> None:
        """In a text edited by hand the words are replaced for good, everywhere."""
        words = self.editor.textCursor().selectedText()
        if not words.strip():
            return
        cursor = self.editor.textCursor()
        cursor.beginEditBlock()
        changed = self.editor.toPlainText().replace(words.replace("\u2029", "\n"), "[HIDDEN]")
        cursor.select(cursor.SelectionType.Document)
        cursor.insertText(changed)
        cursor.endEditBlock()
        self._say_size()

    def _on_save(self) -> None:
        suffix = _SUFFIX[self.switch.current()]
        folder = self._folder or QStandardPaths.writableLocation(QStandardPaths.StandardLocation.DocumentsLocation)
        path, _ = QFileDialog.getSaveFileName(
            self, tr("Save report"), f"{folder}/kvstudio-report{suffix}", f"*{suffix}"
        )
        if path:
            self._folder = path.rpartition("/")[0]
            self.save_to(path)

    def _on_saved(self, path: str) -> None:
        self.save_button.setEnabled(True)
        self._say(tr("Saved as {}").format(path), "check-circle", "good")
        self.saved.emit(path)

    def _on_failed(self, error: KvStudioError) -> None:
        self._offer(self._report is not None)
        self._say(" ".join(part for part in (f"{error.message}.", error.hint) if part), "warn", "bad")


def _hidden(report: Report, pieces: tuple[str, ...]) -> Report:
    for piece in pieces:
        report = hide_selection(report, piece)
    return report
