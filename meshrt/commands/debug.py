"""``debug``: the debugger's prompt."""

from __future__ import annotations

from meshrt.commandline.command import AnyCommand, Command, Group, Offer, Option, Values, run
from meshrt.errors import UsageError

__all__ = ["COMMAND"]


def _check(arguments: Values) -> None:
    run, pid = arguments["run"], arguments.pop("pid")
    if run and pid:
        raise UsageError(f"one program at a time: expected RUN or --pid RUN, not both ({run}, --pid {pid})")
    arguments["run"] = run or pid
    if arguments["open"] is not None and arguments["run"]:
        raise UsageError("--open FILE cannot be combined with RUN: the file is about a program that has ended")
    if arguments["open"] is not None and arguments["json"]:
        raise UsageError("--json cannot be combined with --open: the file is JSON itself")


COMMAND: AnyCommand = Command(
    "debug",
    "open the debugger's prompt on a running program",
    group=Group.CONTROL,
    arguments=(run("the program, if several run: its id, its pid or its run directory"),),
    options=(
        Option("--pid", "the same as RUN", metavar="RUN", default=""),
        Option("-c", "run this command and exit (may be repeated)", "commands", "COMMAND", many=True),
        Option("--open", "open a failure file, or a file that MESHRT_POST_MORTEM=dump has written", metavar="FILE"),
        Option("--json", "write one JSON object for each command instead of text (docs/json.md)"),
    ),
    details=(
        "Shows which ranks are stopped, and their variables. Without -c a prompt opens; `help` shows its commands.\n"
        "Without a terminal, commands are read from standard input. `python -m meshrt.debug` is the same."
    ),
    main="meshrt.debug.prompt.entry:show",
    check=_check,
    offer=Offer.SHELL,
)
