"""Tables for notebooks. Pure."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

__all__ = ["html_table"]


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """Return a table with a title, and maybe a line below it. All texts are escaped."""
    from tabulate import tabulate  # start-up: only notebooks need it

    # Texts stay as they are: "1e3" is no number.
    table = tabulate([[str(cell) for cell in row] for row in rows], head, tablefmt="html", disable_numparse=True)
    lines = [f"<p><code>{html.escape(title)}</code></p>", str(table)]
    return "\n".join([*lines, f"<p>{html.escape(below)}</p>"] if below else lines)
