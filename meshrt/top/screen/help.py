"""The help on keys and columns."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

__all__ = ["HelpScreen"]

_TEXT = """\
Keys
  up, down, page up, page down, home, end    move; left, right: columns beyond the edge
  enter        look into the rank: its stacks, variables and log, and how to get at it in the debugger
  /            select ranks, as everywhere: hosts=0   0:8   stopped   !gpus=1 & running;   escape: all ranks
  c m g l u    order by CPU, memory, growth, calls, queue;   s: state;   n: rank;   again: reverse order
  < >          order by the column to the left, to the right;   r: reverse order;   or click on a title
  space        pause;   + and -: look half as often, twice as often
  x            forget ranks whose mesh was stopped, and let growth begin anew
  q            quit

Columns
  STATE        running; blocked: at one instruction, using no processor; stopped: in the debugger; post-mortem: there,
               after an exception; not-answering: stopped by a signal, or C code holds its GIL; dead
  CPU%         of one processor, all threads of the process; processes that it has started are not counted
  RSS          what it has in memory;   STORE: in shared memory, its own and what it holds of others
  GROWTH       of RSS without shared memory, and of STORE, since the rank was first seen here (or x was pressed)
  GPU          what torch's allocator keeps on devices
  CALLS/S      messages that its actors have begun to serve
  QUEUE        messages that have come and wait: read, or, while an endpoint keeps its thread, in the sockets;
               5+: or more. What callers could not send yet is not among them
  RUNS         the endpoint that runs just now
  NOTE         where it is blocked or stopped, why it is in its state, and since when

A rank that does not answer has its row all the same: its host agent reads what it uses from /proc.
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
            yield Static(_TEXT, markup=False)
        yield Footer()
