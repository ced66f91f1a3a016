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
    Option("-n", "the N largest, and what the others add up to", "most", "N", convert=number("rows", 1)),
    Option("-r, --reverse", "reverse the order"),
    Option(
        "--sort", "the largest first (size, pss, growth), or in this order", "", "ORDER", default="", choices=ORDERS
    ),
    Option("--by", "add up; by rank: fold nothing", default="", metavar="WHAT", choices=GROUPINGS),
    Option("--wide", "all columns, also where the terminal is narrower"),
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
        Option("--actor", "as ACTOR", "only", "ACTOR", default=""),
        Option(
            "--vars", "which variables hold memory; or what is inside of this one (self.cache)", "", "NAME", const=""
        ),
        Option("--frames", "... and local variables of ranks that are stopped in the debugger"),
        Option("--refs", "what is in shared memory: objects that were put, large arrays of messages"),
        Option("--holders", "... which processes hold each object whose name begins with REF", metavar="REF"),
        Option("--exact", "count variables to the end, however long that takes"),
        Option("--budget", f"processor time per rank for --vars ({MILLISECONDS:g} ms)", metavar="MS", convert=float),
        Option("--addresses", "the IP address of each host, also if there is only one"),
        Option("--units", "how sizes are written", default="auto", metavar="UNITS", choices=UNITS),
        Option("--stats-only", "totals only"),
        Option(
            "--format",
            "a table, or one object with all that was seen (docs/json.md)",
            "",
            "FORMAT",
            default="table",
            choices=("table", "json"),
            offer=_SHELL,
        ),
        Option("--json", "the same as --format json", "format", sets="json", offer=_SHELL),
        _file("--save", "keep this view for a later --diff"),
        Option("--force", "with --save: overwrite a file that meshrt has not written", offer=_SHELL),
        _file("--open", "show a view that was kept, or that a rank wrote at its limit"),
        _file("--diff", "show what has grown since a view that was kept"),
        Option(
            "--watch", "repeat the measurement, and show what grows", "", "SECONDS", 2.0, convert=duration, offer=_SHELL
        ),
    ),
    aliases=("mem",),
    details=(
        "Read by the host agents, so a rank that hangs, was stopped by a signal or holds the GIL has its row too.\n"
        "RSS is all that a rank has in memory, PSS counts a page that n processes have as 1/n, SHARED is what\n"
        "others have too, HEAP belongs to no file, FREE is kept by malloc though it is not in use. STORE is what a\n"
        "rank has put into shared memory, PINNED what of it only others hold, HOLDS what it holds of others. Sizes of\n"
        "variables are marked: = is exact, >= was counted until the time was over, ~ is an estimate of the whole.\n"
        "Nothing of the program is run to measure it, and nothing is stopped. docs/memory.md finds a leak step by\n"
        "step."
    ),
    main="meshrt.memory.command:show",
    schema=MEMORY,
    check=check,
    record={"document": "that of [`meshrt memory`](#the-document-of-meshrt-memory)"},
)
