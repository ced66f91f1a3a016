"""``p``: the value of an expression on ranks; ``pp``, ``whatis`` and ``source`` differ in how it is shown."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Outcome, ranks
from meshrt.debug.operations import Print
from meshrt.debug.prompt.context import ANSWERS, DIFF, VERBOSE, Prompt, told

__all__ = ["COMMAND", "printer"]

_LATE = "the expression is still being evaluated there"


def printer(name: str, summary: str, details: str = "") -> Command[Prompt]:
    """Return a command that asks ranks for an expression; ``name`` says how they show its value."""

    def run(prompt: Prompt, arguments: Arguments) -> Outcome:
        asked = {key: arguments[key] for key in ("actor", "ranks", "expression")}
        answers = prompt.collect(prompt.client.ask(Print(command=name, **asked)))
        whole = {"verbose": True} if name == "source" else {}  # source is of use only as a whole
        return told(answers, {**arguments, **whole}, late=_LATE)

    return Command(
        name,
        summary,
        run,
        Group.VALUES,
        arguments=(
            Argument("actor", Kind.ACTOR, required=True),
            ranks(),
            Argument("expression", Kind.EXPRESSION, required=True),
        ),
        options=(VERBOSE, DIFF),
        details=details,
        record=ANSWERS,
    )


COMMAND = printer(
    "p",
    "print an expression on ranks, stopped or running",
    "A stopped rank evaluates the expression in the stack frame where it is stopped. A running rank is not stopped:\n"
    "there `self` is the actor and the names are those of its module. Equal values are shown once, with their ranks.\n"
    "Many numbers are summarized (min, median, max, outliers; -v shows each number). Arrays and tensors are shown by\n"
    "shape, dtype, min, max, mean and number of NaN; with more than 16 ranks, one line per shape. Long values are\n"
    "cut; -v shows all. ACTOR may be omitted before ranks(...), if there is only one actor.\n"
    "  p trainer self.loss          p --diff 0 trainer ranks(hosts=1) self.config",
)
