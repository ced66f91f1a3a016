"""The words of the mesh's console, its own and those of the debugger's prompt, and its help."""

from __future__ import annotations

from meshrt.commandline.command import Command, Offer, ranks
from meshrt.commandline.table import COMMANDS, AnyTable, Table
from meshrt.commandline.texts import overview
from meshrt.debug.prompt.lines import is_pdb_word
from meshrt.errors import UsageError

__all__ = ["OWN", "REQUESTS", "check", "console_help"]

_HERE = (ranks("only these of the attached ranks"),)
#: Those of pdb, and what an IDE has a button for.
OWN: AnyTable = Table(
    (
        Command("n", "step over calls, on ranks that are stopped in the IDE", arguments=_HERE, aliases=("next",)),
        Command("s", "step into a call, on ranks that are stopped in the IDE", arguments=_HERE, aliases=("step",)),
        Command("r", "step out, on ranks that are stopped in the IDE", arguments=_HERE, aliases=("return",)),
        Command(
            "c",
            "resume ranks that are stopped in the IDE, and cancel a pause that has not stopped a rank yet",
            arguments=_HERE,
            aliases=("cont", "continue"),
            details=(
                "With an actor (`continue ACTOR [ranks(...)]`), or while no rank is stopped in the IDE, it resumes the "
                "ranks at prompts."
            ),
        ),
        Command(
            "pause",
            "stop attached ranks where they are",
            arguments=_HERE,
            details="A running evaluation on a stopped rank is interrupted.",
        ),
    )
)
#: Name of a command -> the request of DAP.
REQUESTS = {"n": "next", "s": "stepIn", "r": "stepOut", "c": "continue", "pause": "pause"}
#: Commands of the prompt: those for ranks that the IDE does not have, and those that are not valid here.
_OUTSIDE = ("attach", "interrupt")
_NOT_HERE = {
    "wait": "wait works only at the prompt: an IDE shows stops itself, and the wait would block this console",
    "quit": "quit works only at the prompt: this console ends with its session; Disconnect ends the session",
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
        raise UsageError(
            f"{topic!r} is a command of pdb, for a rank that is stopped at a prompt: attach to the rank first"
        )
    if topic:
        return COMMANDS.help(topic, Offer.CONSOLE)
    shown = [command for command in COMMANDS.offered(Offer.CONSOLE) if OWN.get(command.name) is None]
    lines = ["ranks that are attached to the IDE, all or some of them:", *overview(OWN.all())]
    lines += ["all ranks:", *overview(each for each in shown if each.name not in _OUTSIDE)]
    lines += ["ranks that are not attached to the IDE:", *overview(each for each in shown if each.name in _OUTSIDE)]
    return "\n".join([*lines, "`help COMMAND` shows the usage of a command"])
