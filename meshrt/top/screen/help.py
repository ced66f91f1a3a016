"""The help on keys and columns."""

from __future__ import annotations

from textwrap import indent
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from meshrt.top.columns import explained

__all__ = ["HelpScreen"]

#: Characters of a line, without its indentation.
_WIDTH = 116
_TEXT = f"""\
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
{indent(explained(_WIDTH), "  ")}

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
