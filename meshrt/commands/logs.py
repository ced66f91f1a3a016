"""``logs``: what ranks have printed."""

from __future__ import annotations

from meshrt.commandline.command import (
    Argument,
    Arguments,
    Command,
    Group,
    Kind,
    Offer,
    Option,
    Outcome,
    Values,
    ranks,
    run,
)
from meshrt.commandline.numbers import number
from meshrt.debug.operations import Logs
from meshrt.debug.prompt.context import ANSWERS, Prompt, told
from meshrt.errors import UsageError
from meshrt.show.records import LOGS

__all__ = ["COMMAND"]

#: The value of ``--diff`` without a rank: the first one.
_FIRST = -1


def _check(arguments: Values) -> None:
    if arguments.get("follow") and arguments["diff"] is not None:
        raise UsageError("--diff compares existing lines: it cannot be combined with -f")


def _logs(prompt: Prompt, arguments: Arguments) -> Outcome:
    asked = {name: arguments[name] for name in ("actor", "ranks", "lines")}
    answers = prompt.collect(prompt.client.ask(Logs(**asked)))
    first = min((min(each["ranks"]) for each in answers.data()["answers"] if each["ranks"]), default=0)
    against = first if arguments["diff"] == _FIRST else arguments["diff"]
    return told(answers, {"diff": against})


COMMAND = Command(
    "logs",
    "show the last lines that ranks have printed, equal lines once",
    _logs,
    Group.LOOK,
    arguments=(
        run("the program, which may have ended: its id, its pid or its run directory"),
        Argument("actor", Kind.ACTOR, "only ranks of this actor; for a program that has ended: the name of a mesh"),
        ranks(),
    ),
    options=(
        Option(
            "-n",
            "number of lines of each rank (10; at most 10000, from its last 64 KiB)",
            "lines",
            "LINES",
            convert=number("lines", None),
        ),
        Option(
            "--diff",
            "show what differs from this rank (if not given: the first one)",
            metavar="RANK",
            const=_FIRST,
            convert=number("a rank"),
        ),
        Option(
            "-f, --follow",
            "continue until the program ends, or Ctrl-C; ranks and meshes that start later are shown too",
            offer=Offer.SHELL,
        ),
        Option("--raw", "keep control characters as they were printed", offer=Offer.SHELL),
        Option("--json", "one JSON object per line (docs/json.md)", offer=Offer.SHELL),
    ),
    aliases=("log",),
    details="Equal output of several ranks is shown once. Default: all ranks.",
    main="meshrt.debug.shell.logs:show",
    schema=LOGS,
    reads_files=True,
    check=_check,
    record=ANSWERS,
)
