"""``vars``: which variables hold memory. As ``memory --vars --frames``, with fewer rows and a NAME in the line."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Command, Group, Kind, Option, Values, ranks
from meshrt.commands.memory import TABLE, look
from meshrt.errors import UsageError
from meshrt.memory.command import check
from meshrt.memory.groups import OF_REFERENCES

__all__ = ["COMMAND"]

#: Rows that are shown without ``-n``: one screen.
_MOST = 20


def _check(arguments: Values) -> None:
    if arguments["by"] == OF_REFERENCES:
        raise UsageError(f"{OF_REFERENCES} are groups of objects in shared memory: memory --by {OF_REFERENCES}")
    name = arguments.pop("name")
    most = _MOST if arguments["most"] is None else arguments["most"]
    arguments.update(vars=name, frames=True, most=most, alone=True)
    check(arguments)


COMMAND = Command(
    "vars",
    "show which variables hold memory, those of stopped stack frames included",
    look,
    Group.LOOK,
    arguments=(Argument("actor", Kind.ACTOR), Argument("name", Kind.VARIABLE), ranks()),
    options=(*TABLE, Option("--exact", "count variables completely, without a time limit")),
    details=(
        "Shows attributes of actors and of their classes, globals of their modules, and local variables of stopped\n"
        "ranks. = is exact, >= was counted until the time limit (200 ms per rank), ~ is an estimate of the whole.\n"
        "Memory that several variables reach counts for each of them, and once in the totals. Runs none of your code.\n"
        f"Shows {_MOST} rows; -n changes this. NAME, as in the table, shows the contents of that variable, the\n"
        "largest first.\n"
        "  vars self.cache      vars trainer self.cache['train'] ranks(3)"
    ),
    check=_check,
    record={"document": "that of [`meshrt memory`](#the-document-of-meshrt-memory)"},
)
