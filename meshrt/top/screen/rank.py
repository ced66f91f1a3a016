"""One rank: what it does, its stacks, its variables, its log, and the commands that give access to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from meshrt.errors import MeshError
from meshrt.escapes import escaped
from meshrt.top.asking import Asking
from meshrt.top.columns import COLUMNS
from meshrt.top.model import Key, Model, Row
from meshrt.top.screen.ranks import STATE_STYLES

__all__ = ["RankScreen"]

#: Columns that the head of the screen shows, with their titles.
_TOLD = ("cpu", "rss", "growth", "store", "gpu", "calls", "queue")


class RankScreen(Screen[None]):
    """One rank of the model of ``top``. The content of a tab is requested when the tab is opened, and by a key.

    Args:
        model: The model of the screen below, which keeps it up to date.
        asking: Sends the requests of the tabs.
        key: The rank.
    """

    CSS = """
    #rank { height: auto; padding: 0 1; background: $panel; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", key_display="esc"),
        Binding("q", "app.pop_screen", "Back", show=False),
        Binding("r", "again", "Refresh"),
        Binding("1,s", "tab('stacks')", "Stacks", key_display="1"),
        Binding("2,v", "tab('variables')", "Variables", key_display="2"),
        Binding("3,l", "tab('log')", "Log", key_display="3"),
    ]

    def __init__(self, model: Model, asking: Asking, key: Key) -> None:
        super().__init__()
        self._model = model
        self._asking = asking
        self._key = key
        #: The commands that give access to the rank, and the state for which they were requested.
        self._how: tuple[str, list[str]] = ("", [])

    def compose(self) -> ComposeResult:
        yield Static(id="rank")
        with TabbedContent(id="tabs"):
            for name in ("stacks", "variables", "log"):
                with TabPane(name.capitalize(), id=name), VerticalScroll():
                    yield Static(id=f"{name}-text")
        yield Footer()

    def on_mount(self) -> None:
        """Keep the head of the screen up to date, every second."""
        self._tell()
        self.set_interval(1.0, self._tell)

    def _row(self) -> Row | None:
        return self._model.get(self._key)

    def _tell(self) -> None:
        row = self._row()
        if row is None:
            self.query_one("#rank", Static).update("rank removed; Escape returns")
            return
        now = self._model.time
        columns = {each.name: each for each in COLUMNS}
        text = Text()
        coords = columns["coords"].text(row, now)
        text.append(escaped(f"{row.mesh} rank {row.rank}") + (f" ({coords})" if coords else ""), "bold")
        text.append(escaped(f"  on {row.host}, pid {row.pid}  "))
        text.append(row.state, STATE_STYLES[row.state])
        note = columns["note"].text(row, now)
        text.append(f"  {note}\n" if note else "\n")
        told = [(columns[name].title, columns[name].text(row, now)) for name in _TOLD]
        text.append("  ".join(f"{title} {value}" for title, value in told if value) + "\n")
        for each in row.actors or ():
            calls = "" if each.calls is None else f"{each.calls:.1f} calls/s, "
            runs = f"runs {each.endpoint}" if each.endpoint else "waits for messages"
            text.append(escaped(f"  {each.name}: {runs}; {calls}{each.waiting}{'+' * each.more} waiting\n"))
        state, lines = self._how
        if state != row.state:
            self._ask_how(row)
        for line in lines if state == row.state else ():
            text.append(f"  {escaped(line)}\n", "bold cyan")
        text.rstrip()
        self.query_one("#rank", Static).update(text)

    @work(exclusive=True, group="how")
    async def _ask_how(self, row: Row) -> None:
        try:
            lines = await asyncio.to_thread(self._asking.how_to_enter, row)
        except (MeshError, OSError):  # the rank has just ended: the head of the screen says so
            lines = []
        before, self._how = self._how, (row.state, lines)
        if before != self._how:
            self._tell()

    # -- tabs

    def action_tab(self, name: str) -> None:
        """Show a tab."""
        self.query_one("#tabs", TabbedContent).active = name

    def action_again(self) -> None:
        """Request the content of the tab again."""
        self._ask(self.query_one("#tabs", TabbedContent).active)

    @on(TabbedContent.TabActivated)
    def _activated(self, event: TabbedContent.TabActivated) -> None:
        self._ask(event.pane.id or "")

    @work(exclusive=True, group="tab")
    async def _ask(self, name: str) -> None:
        row, asking = self._row(), self._asking
        if row is None:
            return
        how: dict[str, Callable[[Row], str]] = {
            "stacks": asking.stacks,
            "variables": asking.variables,
            "log": asking.log,
        }
        shown = self.query_one(f"#{name}-text", Static)
        shown.update(Text("loading ..."))
        try:
            text = await asyncio.to_thread(how[name], row)
        except (MeshError, OSError) as error:  # TimeoutError included
            text = escaped(str(error))
        shown.update(Text(text))
        if name == "log" and shown.parent is not None:
            self.query_one("#log VerticalScroll", VerticalScroll).scroll_end(animate=False)
