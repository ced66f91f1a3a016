"""``continue``: stopped ranks go on."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Outcome, Values, ranks
from meshrt.debug.operations import Continue
from meshrt.debug.prompt.context import ANSWERS, Prompt, told
from meshrt.errors import UsageError

__all__ = ["COMMAND"]


def _check(arguments: Values) -> None:
    if arguments["ranks"] and not arguments["actor"]:
        raise UsageError("the actor is missing: continue ACTOR ranks(...)")


def _continue(prompt: Prompt, arguments: Arguments) -> Outcome:
    answers = prompt.collect(prompt.client.ask(Continue(**arguments)))
    outcome = told(answers, arguments, late="this command does not wait any longer")
    if answers.sent or outcome.text:
        return outcome
    return Outcome("nothing is stopped", outcome.data)


COMMAND = Command(
    "continue",
    "resume all stopped ranks, or some of them",
    _continue,
    Group.CONTROL,
    arguments=(Argument("actor", Kind.ACTOR), ranks()),
    aliases=("c",),
    details="Each rank continues where it stopped, and stops again at the next breakpoint, if there is one.",
    check=_check,
    record=ANSWERS,
)
