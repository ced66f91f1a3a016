"""``clear``: breakpoints are deleted."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Outcome, Values
from meshrt.commandline.numbers import number
from meshrt.debug.operations import Breaks, Clear
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.tables import breakpoints
from meshrt.debug.prompt.terminal import agreed

__all__ = ["COMMAND"]


def _check(arguments: Values) -> None:
    words = [word for part in arguments["ids"] for word in part.split(",") if word]
    arguments["all"] = "all" in words
    arguments["ids"] = [] if arguments["all"] else list(map(number("a breakpoint"), words))


def _clear(prompt: Prompt, arguments: Arguments) -> Outcome:
    ids = arguments["ids"]
    if not ids and not arguments["all"] and prompt.terminal.interactive:
        count = len(prompt.client.ask(Breaks()).breaks)
        if count and not agreed(
            prompt.terminal, f"delete all {count} breakpoints?" if count > 1 else "delete the breakpoint?"
        ):
            return Outcome("not deleted; `clear NUMBER` deletes one breakpoint, `clear all` deletes all")
    cleared = prompt.client.ask(Clear(ids))
    text = "\n".join(f"deleted {breakpoints([row], {})}" for row in cleared.breaks)
    return Outcome(text or "no breakpoints are set", plain(cleared))


COMMAND = Command(
    "clear",
    "delete the named breakpoints, or all",
    _clear,
    Group.BREAKS,
    arguments=(Argument("ids", many=True, metavar="NUMBER", help="as `breaks` shows it; all: all of them"),),
    aliases=("cl",),
    details="Without a NUMBER, all breakpoints are deleted; asks for confirmation at a terminal.",
    check=_check,
    record={"breaks": '`[{"id", "place", "condition", "once", "selection", "ranks", "goes_with"}]`'},
)
