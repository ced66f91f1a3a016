"""The table of ranks: only visible lines are rendered, however many ranks there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from meshrt.show.table import padded, widths
from meshrt.top.columns import Column, Sorting, in_order, shown_columns
from meshrt.top.model import Key, Model, Row

__all__ = ["STATE_STYLES", "RankTable"]

STATE_STYLES = {
    "running": Style(color="green"),
    "idle": Style(dim=True),
    "blocked": Style(color="yellow"),
    "stopped": Style(color="cyan", bold=True),
    "post-mortem": Style(color="magenta", bold=True),
    "not-answering": Style(color="red", bold=True),
    "dead": Style(color="red", dim=True),
}
_PLAIN, _DEAD, _CURSOR = Style(), Style(dim=True), Style(reverse=True)
_HEADER, _SORTED = Style(bold=True, underline=True), Style(bold=True, reverse=True)
_GAP = "  "
#: Cells by which left and right move.
_STEP = 16


class RankTable(ScrollView, can_focus=True):
    """Rows of a model, in order. The cursor stays on its rank; until the user moves it, it stays on the first row."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("left", f"sideways({-_STEP})", "Left", show=False),
        Binding("right", f"sideways({_STEP})", "Right", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
        Binding("enter", "open", "Look into rank"),
    ]

    class Opened(Message):
        """The user opens a rank."""

        def __init__(self, row: Row) -> None:
            super().__init__()
            self.row = row

    class SortWanted(Message):
        """The user sorts the rows by a column."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []
        self._cells: list[list[str]] = []
        self._columns: list[Column] = []
        self._widths: list[int] = []
        #: Largest widths of columns so far, by name.
        self._widest: dict[str, int] = {}
        self._sorting = Sorting()
        self._cursor: Key | None = None
        #: The view was scrolled to the cursor, which was not visible since: there may have been no room for it yet.
        self._moved = False

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that are shown."""
        return self._columns

    def show(self, model: Model, sorting: Sorting) -> None:
        """Show the rows of a model, in the order of ``sorting``."""
        before = self._line_of_cursor()
        self._sorting = sorting
        self._rows = in_order(model.rows(), sorting)
        self._columns = shown_columns(self._rows, sorting)
        titles = [each.title for each in self._columns]
        self._cells = [titles, *([each.text(row, model.time) for each in self._columns] for row in self._rows)]
        # A column grows, and never shrinks: numbers that change all the time do not move the columns beside them.
        names = [each.name for each in self._columns]
        self._widest |= {
            name: max(wide, self._widest.get(name, 0)) for name, wide in zip(names, widths(self._cells), strict=True)
        }
        self._widths = [self._widest[name] for name in names]
        wide = sum(self._widths) + len(_GAP) * len(self._widths)
        self.virtual_size = Size(wide, len(self._rows) + 1)
        if self._cursor is not None and (self._moved or self._line_of_cursor() != before):
            self._see_cursor()  # the cursor moves with its rank
        self.refresh()

    def begin(self) -> None:
        """Go to the first row, of whatever rank: the user wants to see the top of a new order."""
        self._cursor = None
        self._widest.clear()
        self.scroll_to(y=0, animate=False)

    def row(self) -> Row | None:
        """Return the row at the cursor; None if there are no rows."""
        return self._rows[self._line_of_cursor()] if self._rows else None

    def _line_of_cursor(self) -> int:
        return next((line for line, row in enumerate(self._rows) if row.key == self._cursor), 0)

    # -- what it looks like

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen: the titles, or a row."""
        line = y - 1 + self.scroll_offset.y if y else -1
        if line >= len(self._rows) or not self._cells:
            return Strip.blank(self.size.width, self.rich_style)
        segments = self._titles() if line < 0 else self._segments(line)
        strip = Strip(segments).extend_cell_length(self.scroll_offset.x + self.size.width)
        # The column of rank numbers does not scroll to the side.
        number, left = self._widths[0] + len(_GAP), self.scroll_offset.x
        parts = [strip.crop(0, number), strip.crop(left + number, left + self.size.width)]
        return Strip.join(parts).apply_style(self.rich_style)

    def _titles(self) -> list[Segment]:
        segments = []
        for column, text, wide in zip(self._columns, self._cells[0], self._widths, strict=True):
            style = _SORTED if column.name == self._sorting.by else _HEADER
            segments += [Segment(_fitted(column, text, wide), style), Segment(_GAP)]
        return segments

    def _segments(self, line: int) -> list[Segment]:
        row = self._rows[line]
        at_cursor = self.has_focus and line == self._line_of_cursor()
        segments = []
        for column, text, wide in zip(self._columns, self._cells[line + 1], self._widths, strict=True):
            style = STATE_STYLES[row.state] if column.name == "state" else _DEAD if row.state == "dead" else _PLAIN
            segments.append(Segment(_fitted(column, text, wide) + _GAP, style + _CURSOR if at_cursor else style))
        return segments

    # -- moving

    def action_move(self, lines: int) -> None:
        """Move the cursor by lines."""
        if self._rows:
            line = min(len(self._rows) - 1, max(0, self._line_of_cursor() + lines))
            self._cursor = self._rows[line].key
            self._see_cursor()
            self.refresh()

    def action_sideways(self, cells: int) -> None:
        """Scroll to the right, or back."""
        self.scroll_relative(x=cells, animate=False)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.action_move(pages * max(1, self._seen() - 1))

    def action_open(self) -> None:
        """Open the rank at the cursor."""
        row = self.row()
        if row is not None:
            self.post_message(self.Opened(row))

    def _seen(self) -> int:
        """Return the number of visible rows: the height without the titles and a scroll bar."""
        return max(1, self.scrollable_content_region.height - 1)

    def _see_cursor(self) -> None:
        line, seen = self._line_of_cursor(), self._seen()
        top = self.scroll_offset.y
        self._moved = not top <= line < top + seen
        if self._moved:
            self.scroll_to(y=line if line < top else line - seen + 1, animate=False)

    def on_click(self, event: events.Click) -> None:
        """Select the row, or the order, that was clicked on; a second click opens the row."""
        if event.y == 0:
            pinned = event.x < self._widths[0] + len(_GAP) if self._widths else False
            at = event.x + (0 if pinned else self.scroll_offset.x)
            for column, wide in zip(self._columns, self._widths, strict=True):
                if 0 <= at < wide + len(_GAP):
                    self.post_message(self.SortWanted(column.name))
                at -= wide + len(_GAP)
            return
        line = event.y - 1 + self.scroll_offset.y
        if line < len(self._rows):
            self._cursor = self._rows[line].key
            self.refresh()
            if event.chain > 1:
                self.action_open()

    def on_focus(self) -> None:
        """Draw the cursor as active."""
        self.refresh()

    def on_resize(self) -> None:
        """Keep the cursor visible."""
        if self._cursor is not None:
            self._see_cursor()

    def on_blur(self) -> None:
        """Draw the cursor as inactive."""
        self.refresh()


def _fitted(column: Column, text: str, wide: int) -> str:
    return padded(text, wide, right=column.right)
