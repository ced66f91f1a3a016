"""The tables of the documentation that are made from the declarations of commands, and from docstrings.

``python -m tests.support.pages`` writes them; a test checks that they are written. A table is between two comments,
``<!-- made of NAME -->`` and ``<!-- end -->``, which a reader of the page does not see.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from meshrt.commandline.command import AnyCommand, Kind, Offer
from meshrt.commandline.table import COMMANDS
from meshrt.commandline.texts import ordered
from tests.support.programs import ROOT
from tests.support.reference import error_rows, rows_of

__all__ = ["PAGES", "made"]

PAGES = [ROOT / "docs" / name for name in ("api.md", "commands.md", "debugger.md", "json.md")]
_TABLE = re.compile(r"(<!-- made of ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _commands(offer: Offer) -> list[AnyCommand]:
    return ordered(COMMANDS.offered(offer))


def _shell() -> list[str]:
    forms = [form for each in _commands(Offer.SHELL) for form in each.forms(Offer.SHELL)]
    rows = [_row(_code(f"meshrt {each.usage(Offer.SHELL)}"), each.summary) for each in forms]
    return ["| command | what it does |", "|---|---|", *rows]


def _prompt() -> list[str]:
    rows = [
        _row(_code(each.usage(Offer.PROMPT)), ", ".join(map(_code, each.aliases)), each.summary)
        for each in _commands(Offer.PROMPT)
    ]
    return ["| command | also | what it does |", "|---|---|---|", *rows]


def _options(name: str) -> list[str]:
    command = COMMANDS.find(name, Offer.SHELL)
    rows = [_row(_code(each.written), each.help.replace("|", "\\|")) for each in command.options_for(Offer.SHELL)]
    rows += [_row("`--ranks SELECTION`", each.help) for each in command.arguments if each.kind is Kind.RANKS]
    return ["| option | what it does |", "|---|---|", *rows]


def _records() -> list[str]:
    alike: dict[str, list[str]] = {}
    for each in _commands(Offer.PROMPT):
        keys = "; ".join(f"`{key}`: {meaning}" for key, meaning in each.record.items()) or "none"
        alike.setdefault(keys, []).append(_code(each.name))
    return ["| command | keys |", "|---|---|", *(_row(", ".join(names), keys) for keys, names in alike.items())]


_MAKERS: dict[str, Callable[[], list[str]]] = {
    "the commands of the shell": _shell,
    "the commands of the prompt": _prompt,
    "the records of the prompt": _records,
    "the errors": error_rows,
}


def _lines(name: str) -> list[str]:
    if name.startswith("the names of "):
        return rows_of(name.removeprefix("the names of "))
    if name.startswith("the options of "):
        return _options(name.rpartition(" ")[2])
    return _MAKERS[name]()


def made(page: Path) -> str:
    """Return a page with its tables made anew."""
    text = page.read_text(encoding="utf-8")
    return _TABLE.sub(lambda found: found[1] + "\n" + "\n".join(_lines(found[2])) + "\n\n" + found[3], text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(made(page), encoding="utf-8")
