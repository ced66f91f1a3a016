"""``p``: the value of an expression on ranks; ``pp``, ``whatis`` and ``source`` differ in how it is shown."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Outcome, ranks
from meshrt.debug.operations import Print
from meshrt.debug.prompt.context import ANSWERS, DIFF, VERBOSE, Prompt, told

__all__ = ["COMMAND", "printer"]

_LATE = "it goes on there"


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
    "A stopped rank evaluates it in the stack frame where it is stopped. A running one is not stopped: there `self`\n"
    "is the actor and the names are those of its module. Equal values are shown once, with their ranks. Many\n"
    "numbers are summed up (min, median, max, outliers; -v shows every one), arrays and tensors are described\n"
    "by shape, dtype, min, max, mean and the count of NaN, those of more than 16 ranks in a line for each shape.\n"
    "Of a long value the first lines are shown; -v shows all. ACTOR may be left out before ranks(...), if there\n"
    "is only one.\n"
    "  p trainer self.loss          p --diff 0 trainer ranks(hosts=1) self.config",
)
