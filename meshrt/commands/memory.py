"""``memory``: how much memory ranks have, and which variables hold it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Offer, Option, Outcome, ranks, run
from meshrt.commandline.numbers import duration, number
from meshrt.memory.command import check, view
from meshrt.memory.document import plain
from meshrt.memory.look import GROUPINGS, ORDERS
from meshrt.memory.operations import MILLISECONDS
from meshrt.memory.units import UNITS
from meshrt.show.records import MEMORY

if TYPE_CHECKING:  # start-up: the shell needs no prompt
    from meshrt.debug.prompt.context import Prompt

__all__ = ["COMMAND", "TABLE", "look"]

_SHELL = Offer.SHELL
#: Options of the table of what is shown.
TABLE = (
    Option("-n", "show the N largest, and the sum of the others", "most", "N", convert=number("rows", 1)),
    Option("-r, --reverse", "reverse the order"),
    Option("--sort", "sort rows; by size, pss or growth: the largest first", "", "ORDER", default="", choices=ORDERS),
    Option("--by", "group rows; rank: one row per rank", default="", metavar="WHAT", choices=GROUPINGS),
    Option("--wide", "show all columns, even if the terminal is narrower"),
)


def _file(word: str, help: str) -> Option:
    return Option(word, help, metavar="FILE", convert=Path, offer=_SHELL)


def look(prompt: Prompt, arguments: Arguments) -> Outcome:
    """Run ``memory`` or ``vars`` at a prompt."""
    text, document = view(prompt.client, arguments)
    return Outcome(text, {"document": plain(document)})


COMMAND = Command(
    "memory",
    "show how much memory ranks have, and which variables hold it",
    look,
    Group.LOOK,
    arguments=(
        run(),
        Argument("actor", Kind.ACTOR, "ranks and variables of this actor only"),
        ranks("only these ranks, as in ranks(hosts=0), ranks(0:8), ranks(stopped)"),
    ),
    options=(
        *TABLE,
        Option("--actor", "same as the argument ACTOR", "only", "ACTOR", default=""),
        Option(
            "--vars", "show which variables hold memory; with NAME (self.cache): its contents", "", "NAME", const=""
        ),
        Option("--frames", "as --vars, with local variables of ranks that are stopped in the debugger"),
        Option("--refs", "show objects in shared memory: those of put(), and large arrays of messages"),
        Option("--holders", "as --refs, with the holders of each object whose name begins with REF", metavar="REF"),
        Option("--exact", "count variables completely, without a time limit"),
        Option("--budget", f"processor time per rank for --vars ({MILLISECONDS:g} ms)", metavar="MS", convert=float),
        Option("--addresses", "show the IP address of each host, also if there is only one"),
        Option("--units", "how sizes are written", default="auto", metavar="UNITS", choices=UNITS),
        Option("--stats-only", "show totals only"),
        Option(
            "--format",
            "a table, or one object with all data (docs/json.md)",
            "",
            "FORMAT",
            default="table",
            choices=("table", "json"),
            offer=_SHELL,
        ),
        Option("--json", "the same as --format json", "format", sets="json", offer=_SHELL),
        _file("--save", "save this snapshot for a later --diff"),
        Option("--force", "with --save: overwrite a file that meshrt has not written", offer=_SHELL),
        _file("--open", "show a saved snapshot, or a file that a rank wrote at its memory limit"),
        _file("--diff", "show what has grown since a saved snapshot"),
        Option(
            "--watch", "repeat the measurement, and show what grows", "", "SECONDS", 2.0, convert=duration, offer=_SHELL
        ),
    ),
    aliases=("mem",),
    details=(
        "Host agents measure it, so a rank that hangs, was stopped by a signal or holds the GIL is listed as well.\n"
        "RSS: all memory of a rank. PSS: the same, but a page that n processes have counts as 1/n. SHARED: pages also\n"
        "mapped by others. HEAP: memory of no file. FREE: unused memory that malloc keeps. STORE: what a rank has put\n"
        "into shared memory. PINNED: the part of STORE used only by other processes. HOLDS: memory of others used by\n"
        "this rank. Sizes of variables are marked: = is exact, >= was counted until the time limit, ~ is an estimate\n"
        "of the whole. Runs no code of the program and stops no rank. docs/memory.md shows how to find a leak."
    ),
    main="meshrt.memory.command:show",
    schema=MEMORY,
    check=check,
    record={"document": "that of [`meshrt memory`](#the-document-of-meshrt-memory)"},
)
