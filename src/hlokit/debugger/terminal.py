"""The debugger's full screen, with the Textual library: the program, the active computations, values, commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.suggester import SuggestFromList
from textual.widgets import Footer, Input, RichLog, Static

from hlokit.debugger.commands import Session
from hlokit.debugger.describe import listing_text, place_text, stack_text, value_text
from hlokit.errors import ArgumentError, HlokitError


class Screen(App[None]):
    """Shows a session. Keys make the steps; the line at the bottom takes every command."""

    TITLE = "hlokit debug"
    CSS = """
    #program { width: 3fr; border: round $primary; overflow: auto auto; }
    #side { width: 2fr; }
    #stack { height: auto; max-height: 30%; border: round $primary; }
    #values { height: 1fr; border: round $primary; overflow: auto auto; }
    #log { height: 30%; border: round $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("f10", "command('step')", "Step"),
        ("f11", "command('into')", "Into"),
        ("f12", "command('out')", "Out"),
        ("f9", "command('back')", "Back"),
        ("f8", "command('back-into')", "Back into"),
        ("f5", "command('run')", "Run"),
        ("f4", "command('run-back')", "Run back"),
        ("ctrl+q", "quit", "Quit"),
    ]

    def __init__(self, session: Session, lines: Sequence[str] = ()) -> None:
        super().__init__()
        self.session = session
        self._first = lines

    def compose(self) -> ComposeResult:
        """The panes."""
        with Horizontal():
            yield Static(id="program")
            with Vertical(id="side"):
                yield Static(id="stack")
                yield Static(id="values")
        yield RichLog(id="log", wrap=True)
        yield Input(placeholder="a command; help lists them", suggester=SuggestFromList(self.session.names))
        yield Footer()

    def on_mount(self) -> None:
        """Shows the beginning, after the commands that the session starts with."""
        for id, title in (("program", "program"), ("stack", "running"), ("values", "values"), ("log", "log")):
            self.query_one(f"#{id}").border_title = title
        self.query_one(Input).focus()
        for line in self._first:
            self.perform(line)
        self.show()

    def action_command(self, line: str) -> None:
        """A key's command."""
        self.perform(line)

    @on(Input.Submitted)
    def on_line(self, event: Input.Submitted) -> None:
        """A line that was typed."""
        event.input.value = ""
        self.perform(event.value)

    def perform(self, line: str) -> None:
        """Executes a line and shows the result."""
        log = self.query_one("#log", RichLog)
        log.write(Text(f"> {line}", "bold"))
        try:
            text = self.session.execute(line)
        except HlokitError as error:
            log.write(Text(str(error), "red"))
        else:
            if text:
                log.write(Text(text))
        if self.session.is_over:
            self.exit()
        else:
            self.show()

    def show(self) -> None:
        """Brings the panes up to date."""
        debugger = self.session.debugger
        program = self.query_one("#program", Static)
        lines = listing_text(debugger, max(program.size.height // 2 - 2, 5)).splitlines()
        text = Text(no_wrap=True)
        for line in lines:
            text.append(line + "\n", "reverse bold" if line.startswith("=>") else "")
        program.update(text)
        self.query_one("#stack", Static).update(Text(stack_text(debugger)))
        self.query_one("#values", Static).update(Text(self._values()))
        self.sub_title = place_text(debugger)

    def _values(self) -> str:
        """The watched values and the operands of the next instruction."""
        debugger = self.session.debugger
        if debugger.is_finished:
            return value_text("result", debugger.result)
        frame = debugger.frames[-1]
        operands = frame.next.operands if frame.next is not None else ()
        names = dict.fromkeys([*self.session.watched, *(operand.name for operand in operands)])
        found: list[str] = []
        for name in names:
            try:
                found.append(value_text(f"%{name}", debugger.value(name)))
            except ArgumentError:
                found.append(f"%{name}: not here")
        return "\n".join(found) or "the next instruction has no operands"
