"""``cast``: one pdb command for many stopped ranks."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Outcome, ranks
from meshrt.debug.operations import Cast
from meshrt.debug.prompt.context import ANSWERS, DIFF, VERBOSE, Prompt, told
from meshrt.debug.prompt.terminal import agreed
from meshrt.debug.protocol import QUITS

__all__ = ["COMMAND"]

_LATE = "this command does not wait any longer; the next stop of these ranks will be announced"


def _cast(prompt: Prompt, arguments: Arguments) -> Outcome:
    actor, chosen, line = arguments["actor"], arguments["ranks"], arguments["line"]
    whose = f"of {actor} " if actor else ""
    if line in QUITS and not agreed(prompt.terminal, f"abort the endpoint {whose}on {chosen}? the callers get errors"):
        return Outcome("not aborted")
    answers = prompt.collect(prompt.client.ask(Cast(actor, chosen, line)))
    # The command has run: its output cannot be asked for again, so it is not shortened.
    return told(answers, arguments, late=_LATE, again=False)


COMMAND = Command(
    "cast",
    "run a pdb command on a set of stopped ranks",
    _cast,
    Group.VALUES,
    arguments=(
        Argument("actor", Kind.ACTOR, required=True),
        ranks("only these ranks; all: ranks(all)", required=True),
        Argument("line", Kind.LINE, required=True, metavar="COMMAND"),
    ),
    options=(VERBOSE, DIFF),
    details=(
        "Equal answers are shown once, with their ranks. Ranks that are not stopped are named. A step waits until all\n"
        "ranks have stopped again, so that many ranks step together. ACTOR may be omitted if there is only one actor.\n"
        "  cast debugee ranks(3) p x            cast debugee ranks(0:8, 12) n\n"
        "  cast debugee ranks(hosts=0) p x      cast debugee ranks(hosts=1:3, gpus=(0,2)) c\n"
        "  cast debugee ranks(all) p x          cast debugee ranks(stopped & !hosts=2) bt\n"
        "A rank that has not answered after some seconds is named, and the command no longer waits for it. Ctrl-C\n"
        "cancels the lines that still run; a rank that steps continues to run."
    ),
    record=ANSWERS,
)
