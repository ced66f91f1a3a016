"""The screen: sums, the table of ranks, a line for the selection. It looks again and again until the user leaves."""

from __future__ import annotations

import asyncio
import time
from textwrap import indent
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from meshrt.errors import MeshError, SelectionError
from meshrt.escapes import escaped
from meshrt.inspect.programs import command_of, stopped_by_signal
from meshrt.selection import parse
from meshrt.show.text import since
from meshrt.top.asking import Asking
from meshrt.top.columns import Sorting, explained
from meshrt.top.model import Model
from meshrt.top.screen.rank import RankScreen
from meshrt.top.screen.ranks import RankTable
from meshrt.top.table import summary
from meshrt.transport.tools import Program

__all__ = ["TopApp"]

#: The share of the time that looks may take: with very many ranks there are fewer looks. So many seconds of each look
#: do not count: it may only wait for silent ranks.
_SHARE = 0.25
_PATIENCE = 0.3
#: Seconds without a look after which the screen says so.
_LATE = 2.5
_MOST_SECONDS = 60.0
#: Characters of a line of the help, without its indentation.
_HELP_WIDTH = 116
_HELP = f"""\
Keys
  up, down, page up, page down, home, end    move; left, right: columns beyond the edge
  enter        look into the rank: its stacks, variables and log, and how to reach it in the debugger
  /            select ranks, as in all commands: hosts=0   0:8   stopped   !gpus=1 & running;   escape: all ranks
  c m g l u    order by CPU, memory, growth, calls, queue;   s: state;   n: rank;   again: reverse order
  < >          order by the column to the left, to the right;   r: reverse order;   or click on a title
  space        pause;   + and -: refresh half as often, twice as often
  x            remove ranks whose mesh was stopped, and reset growth
  q            quit

Columns
{indent(explained(_HELP_WIDTH), "  ")}

A rank that does not answer still has a row: its host agent reads the values from /proc.
"""


class HelpScreen(ModalScreen[None]):
    """A screen with the help text; any of its keys closes it."""

    CSS = """
    HelpScreen { align: center middle; }
    #help { width: 126; max-width: 100%; height: auto; max-height: 95%; border: round $primary; background: $surface;
            padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.pop_screen", "Back", key_display="esc"),
        Binding("q,question_mark,enter", "app.pop_screen", "Back", show=False),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(_HELP, markup=False)
        yield Footer()


class TopApp(App[None]):
    """``meshrt top``.

    Args:
        program: The program to show.
        ranks, actor: The selection at first; "": all.
        every: Seconds between two looks.

    Raises:
        ConnectionError: The program has ended.
    """

    TITLE = "meshrt top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head, #problem { height: auto; padding: 0 1; }
    #head { background: $panel; }
    #problem { color: $error; display: none; }
    #selection { display: none; height: 3; }
    RankTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "select", "Select", key_display="/"),
        Binding("c", "sort('cpu')", "CPU"),
        Binding("m", "sort('rss')", "Memory"),
        Binding("g", "sort('growth')", "Growth"),
        Binding("l", "sort('calls')", "Calls"),
        Binding("u", "sort('queue')", "Queue"),
        Binding("n", "sort('rank')", "Rank", show=False),
        Binding("s", "sort('state')", "State"),
        Binding("less_than_sign", "column(-1)", "Column", key_display="<", show=False),
        Binding("greater_than_sign", "column(1)", "Column", key_display=">", show=False),
        Binding("r", "reverse", "Reverse", show=False),
        Binding("space", "pause", "Pause"),
        Binding("plus", "every(2)", "Slower", key_display="+", show=False),
        Binding("minus", "every(0.5)", "Faster", key_display="-", show=False),
        Binding("x", "forget", "Remove ended ranks, reset growth", show=False),
        Binding("escape", "unselect", "All ranks", show=False),
    ]

    def __init__(self, program: Program, *, ranks: str, actor: str, sorting: Sorting, every: float) -> None:
        super().__init__()
        self.model = Model()
        self.sorting = sorting
        self.selection = ranks
        self._actor = actor
        self._program = program
        self._every = every
        self._ended_at = ""
        #: Why the last look failed; and the error in the selection that was typed.
        self._problem = self._misspelt = ""
        self._paused = False
        #: The screen is about to end.
        self._left = False
        #: When the last look came, and how long it and the one before it took; monotonic, seconds.
        self._looked = time.monotonic()
        self._took = (0.0, 0.0)
        self._again = asyncio.Event()
        self.asking = Asking(program, self._program_closed)

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="problem")
        yield RankTable()
        yield Input(self.selection, id="selection", placeholder="hosts=0    0:8    stopped    !gpus=1 & running")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self.query_one(RankTable).focus()
        self._tell()
        self.set_interval(1.0, self._tell)
        self._look_again_and_again()

    def on_unmount(self) -> None:
        """Close the connection."""
        self._left = True
        self.asking.close()

    def _program_closed(self) -> None:
        # On the connection's thread: the program has ended, or this screen closes. Before the screen runs, its first
        # look reports it.
        if self.is_running and not self._left:
            self.call_later(self._ended)

    def _ended(self) -> None:
        if not self.ended and not self._left:
            self._ended_at = time.strftime("%H:%M:%S")
            self._tell()

    @property
    def ended(self) -> bool:
        """Whether the program has ended; its last look is still shown."""
        return bool(self._ended_at)

    # -- looking

    @work(exit_on_error=True)
    async def _look_again_and_again(self) -> None:
        while not self.ended:
            self._again.clear()
            begun = time.monotonic()
            if not self._paused:
                await self._look()
            pause = begun + self._interval() - time.monotonic()
            try:
                await asyncio.wait_for(self._again.wait(), max(0.0, pause))
            except TimeoutError:
                continue

    async def _look(self) -> None:
        ranks, begun = self.selection, time.monotonic()
        try:
            look = await asyncio.to_thread(self.asking.look, ranks, self._actor)
        except SelectionError as error:
            self._problem = str(error)
            self.model.select_none()
            self.query_one(RankTable).show(self.model, self.sorting)
        except MeshError as error:
            self._problem = str(error)
        except ConnectionError:
            self._ended()
            return
        except TimeoutError as error:
            self._problem = str(error)
        else:
            self._problem = ""
            self.model.take(look, chosen=bool(ranks or self._actor))
            self._looked = time.monotonic()
            self._took = (self._took[1], self._looked - begun)
            self.query_one(RankTable).show(self.model, self.sorting)
        self._tell()

    def _interval(self) -> float:
        """Return the seconds from one look to the next."""
        usual = min(self._took)  # a single look may have waited for a stopped program
        return max(self._every, (usual - _PATIENCE) / _SHARE)

    def _tell(self) -> None:
        """Update the line at the top."""
        if not self.query("#head"):
            return  # the screen is being closed: its parts are removed one by one
        head = Text()
        program, now = self._program, time.monotonic()
        head.append(f"{escaped(command_of(program, 60))}", "bold")
        head.append(f"  pid {program.pid}, for {since(program.started)}, ")
        if self.ended:
            head.append(f"ended at {self._ended_at}", "bold red")
            head.append(f": these are the last values; meshrt postmortem {program.run_id} shows why, if it has failed")
        elif self._paused:
            head.append("paused", "bold yellow")
            head.append(": space continues")
        elif now - self._looked > _LATE + self._interval():
            head.append(f"has not answered for {now - self._looked:.0f} s", "bold red")
            if stopped_by_signal(program):
                head.append(f": stopped by a signal; kill -CONT {program.pid} resumes it")
        elif self._interval() > self._every:
            head.append(f"every {self._interval():.1f} s: a look takes {min(self._took):.1f} s")
        else:
            head.append(f"every {self._every:g} s")
        if self.selection:
            head.append(f"  selected: {self.selection}", "bold")
            head.append(" (escape: all)")
        head.append("\n" + summary(self.model.totals()))
        self.query_one("#head", Static).update(head)
        problem = self.query_one("#problem", Static)
        problem.display = bool(self._misspelt or self._problem)
        problem.update(Text(escaped(self._misspelt or self._problem)))

    def _show(self) -> None:
        self.query_one(RankTable).show(self.model, self.sorting)
        self._tell()

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the keys of the table while another screen is shown."""
        return len(self.screen_stack) == 1 or action in ("pop_screen", "quit")

    def action_help(self) -> None:
        """Show what keys and columns mean."""
        self.push_screen(HelpScreen())

    def action_sort(self, name: str) -> None:
        """Sort the rows by a column; the second time, reverse the order."""
        again = self.sorting.by == name
        self.sorting = Sorting(name, again and not self.sorting.reverse)
        self.query_one(RankTable).begin()
        self._show()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.action_sort(self.sorting.by)

    def action_column(self, step: int) -> None:
        """Sort the rows by another column, ``step`` columns to the right."""
        names = [each.name for each in self.query_one(RankTable).columns]
        if names:
            self.action_sort(names[(names.index(self.sorting.by) + step) % len(names)])

    @on(RankTable.SortWanted)
    def _sort_wanted(self, message: RankTable.SortWanted) -> None:
        self.action_sort(message.name)

    def action_pause(self) -> None:
        """Pause the looks, or resume them."""
        self._paused = not self._paused
        self._again.set()
        self._tell()

    def action_every(self, factor: float) -> None:
        """Change the time between two looks by a factor."""
        self._every = min(_MOST_SECONDS, max(0.25, self._every * factor))
        self._again.set()
        self._tell()

    def action_forget(self) -> None:
        """Drop the rows of meshes that have ended, and let growth begin anew."""
        self.model.forget()
        self._again.set()
        self._show()

    def action_select(self) -> None:
        """Open the field for a selection."""
        field = self.query_one("#selection", Input)
        field.display = True
        field.focus()

    def action_unselect(self) -> None:
        """Close the field, or show all ranks again."""
        field = self.query_one("#selection", Input)
        field.value = ""
        self._leave(field)
        self._select("")

    @on(Input.Changed, "#selection")
    def _typed(self, event: Input.Changed) -> None:
        """Apply the text as soon as it is a valid selection."""
        try:
            if event.value.strip():
                parse(event.value)
        except SelectionError as error:
            self._misspelt = str(error)
            self._tell()
        else:
            self._select(event.value.strip())

    @on(Input.Submitted, "#selection")
    def _submitted(self, event: Input.Submitted) -> None:
        if not self._misspelt:
            self._leave(event.input)

    def _leave(self, field: Input) -> None:
        field.display = False
        self.query_one(RankTable).focus()

    def _select(self, text: str) -> None:
        self._problem = self._misspelt = ""
        if text != self.selection:
            self.selection = text
            self._again.set()
        self._tell()

    @on(RankTable.Opened)
    def _opened(self, message: RankTable.Opened) -> None:
        self.push_screen(RankScreen(self.model, self.asking, message.row.key))
