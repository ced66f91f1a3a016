"""A look as text for users, and as data for programs: ``meshrt top --once``."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import to_builtins

from meshrt.memory.units import amount, change
from meshrt.program.words import WORST_FIRST
from meshrt.selection import counted
from meshrt.show.records import TOP
from meshrt.show.table import Room
from meshrt.show.table import table as laid_out
from meshrt.top.columns import Sorting, in_order, shown_columns
from meshrt.top.model import Model, Row, Totals

__all__ = ["document", "summary", "table"]


def summary(totals: Totals) -> str:
    """Return the sums in one line; ``?``: not known of any rank, ``of 3 ranks``: known of 3 ranks only."""
    states = ", ".join(f"{totals.states[word]} {word}" for word in reversed(WORST_FIRST) if totals.states.get(word))
    count = sum(totals.states.values())
    # Shared memory counts for each rank; `meshrt memory` asks for PSS, which takes longer and counts it once.
    summed = " summed" if count > 1 else ""
    parts = [f"{counted(count)}: {states}" if count else "no ranks"]

    def told(name: str, value: str, text: str) -> str:
        """Put a sum into ``text``, and add the number of ranks if it does not include all."""
        unknown = totals.unknown.get(name, 0)
        if not unknown:
            return text.format(value)
        if unknown == totals.living:
            return text.format("?")
        return f"{text.format(value)} of {counted(totals.living - unknown)}"

    parts += [told("cpu", f"{totals.cpu:.0f}%", "CPU {}"), told("rss", f"{amount(totals.rss)}{summed}", "RSS {}")]
    parts += [f"growth {change(totals.growth)}"] if totals.growth else []
    parts += [f"store {amount(totals.store)}{summed}"] if totals.store else []
    parts += [f"GPU {amount(totals.gpu)}"] if totals.gpu else []
    parts += [told("calls", f"{totals.calls:.0f}", "{} calls/s"), told("queue", str(totals.queue), "{} waiting")]
    return " | ".join(parts)


def table(model: Model, sorting: Sorting) -> str:
    """Return the text of all rows, and their sums."""
    rows = in_order(model.rows(), sorting)
    columns = shown_columns(rows, sorting)
    cells = [[each.text(row, model.time) for each in columns] for row in rows]
    right = {each.title for each in columns if each.right}
    return "\n".join(
        [*laid_out([each.title for each in columns], cells, Room(None), right=right), "", summary(model.totals())]
    )


def document(model: Model, sorting: Sorting, facts: Mapping[str, object]) -> dict[str, object]:
    """Return the rows and sums as plain data, as docs/json.md says; ``facts``: those of the program."""
    ranks = [_plain(row) for row in in_order(model.rows(), sorting)]
    return TOP.document({"command": "top", **facts, "time": model.time, "ranks": ranks})


def _plain(row: Row) -> dict[str, object]:
    facts: dict[str, object] = to_builtins(row)
    del facts["names"]
    return facts
