"""The words of the mesh's console, its own and those of the debugger's prompt, and its help."""

from __future__ import annotations

from meshrt.commandline.command import Command, Offer, ranks
from meshrt.commandline.table import COMMANDS, AnyTable, Table
from meshrt.commandline.texts import overview
from meshrt.debug.prompt.lines import is_pdb_word
from meshrt.errors import UsageError

__all__ = ["OWN", "REQUESTS", "check", "console_help"]

_HERE = (ranks("only these of the ranks that the IDE has"),)
#: Those of pdb, and what an IDE has a button for.
OWN: AnyTable = Table(
    (
        Command("n", "step ranks that are stopped in the IDE, over calls", arguments=_HERE, aliases=("next",)),
        Command("s", "step ranks that are stopped in the IDE, into a call", arguments=_HERE, aliases=("step",)),
        Command("r", "step ranks that are stopped in the IDE, out of a function", arguments=_HERE, aliases=("return",)),
        Command(
            "c",
            "resume ranks that are stopped in the IDE, and cancel a pause that has not taken effect yet",
            arguments=_HERE,
            aliases=("cont", "continue"),
            details=(
                "With an actor, `continue ACTOR [ranks(...)]`, or while no rank is stopped in the IDE, it resumes "
                "ranks that are stopped at prompts."
            ),
        ),
        Command(
            "pause",
            "stop running ranks of the IDE where they are",
            arguments=_HERE,
            details="An expression that such a rank evaluates is interrupted.",
        ),
    )
)
#: Name of a command -> the request of DAP.
REQUESTS = {"n": "next", "s": "stepIn", "r": "stepOut", "c": "continue", "pause": "pause"}
#: Commands of the prompt: those for ranks that the IDE does not have, and those that are not valid here.
_OUTSIDE = ("attach", "interrupt")
_NOT_HERE = {
    "wait": "wait is for the prompt: an IDE shows which ranks stop, and this console could run no other line meanwhile",
    "quit": "quit is for the prompt: this console ends with the debug session; Disconnect ends the session",
}


def check(word: str) -> None:
    """Raise UsageError for a command of the prompt that is not valid here."""
    command = COMMANDS.get(word)
    if command is not None and command.name in _NOT_HERE:
        raise UsageError(_NOT_HERE[command.name])


def console_help(topic: str = "") -> str:
    """Return the help of one word, or of all if ``topic`` is "". Raises UsageError for an unknown word."""
    if OWN.get(topic) is not None:
        return OWN.help(topic, Offer.CONSOLE)
    check(topic)
    if is_pdb_word(topic):
        raise UsageError(f"{topic!r} is a command of pdb: it works at the prompt of a stopped rank, after `attach`")
    if topic:
        return COMMANDS.help(topic, Offer.CONSOLE)
    shown = [command for command in COMMANDS.offered(Offer.CONSOLE) if OWN.get(command.name) is None]
    lines = ["ranks that the IDE has, all or some of them:", *overview(OWN.all())]
    lines += ["all ranks:", *overview(each for each in shown if each.name not in _OUTSIDE)]
    lines += ["ranks that the IDE does not have:", *overview(each for each in shown if each.name in _OUTSIDE)]
    return "\n".join([*lines, "`help WORD` shows the usage of a command"])
