"""``list``: one row for each rank."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Option, Outcome, Values, ranks
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.tables import listing
from meshrt.inspect.operations import ListRanks
from meshrt.selection import STATE_WORDS
from meshrt.show.table import columns

__all__ = ["COMMAND"]


def _check(arguments: Values) -> None:
    chosen = arguments["actor"] or arguments["ranks"]
    arguments["state"] = arguments["state"] or ("all" if chosen else "stopped")


def _list(prompt: Prompt, arguments: Arguments) -> Outcome:
    state = arguments["state"]
    listed = prompt.client.ask(ListRanks(state, actor=arguments["actor"], ranks=arguments["ranks"]))
    fold, width = not arguments["verbose"], columns(wide=arguments["wide"])
    text = listing(listed.rows, state=state, fold=fold, left_out=listed.left_out, width=width)
    data = plain(listed)
    return Outcome(text, {"rows": data["rows"], "left_out": data["left_out"]})


COMMAND = Command(
    "list",
    "show the stopped ranks, or those in another state",
    _list,
    Group.LOOK,
    arguments=(Argument("state", choices=(*STATE_WORDS, "all"), skips=True), Argument("actor", Kind.ACTOR), ranks()),
    options=(
        Option("-v, --verbose", "show each rank in its own row"),
        Option("--wide", "show all columns, even if the terminal is narrower"),
    ),
    aliases=("l",),
    details=(
        "One row per rank: its number in the mesh, the coordinates used in the call, host, and place in the code.\n"
        "STATE is stopped, running, blocked, idle, post-mortem, not-answering, dead or all. The default is stopped;\n"
        "with an ACTOR or ranks(...) it is all. Above 32 rows, equal rows are merged. Shows the last known state and\n"
        "its age, without asking ranks."
    ),
    check=_check,
    record={
        "rows": '`[{"actor", "mesh", "rank", "coords", "host", "pid", "endpoint", "file", "line", "function", "state", '
        '"note", "since", "breakpoint", "breakpoint_error" (what was wrong with its condition, or `""`), "holder", '
        "...}]`",
        "left_out": "how many further rows there are",
    },
)
