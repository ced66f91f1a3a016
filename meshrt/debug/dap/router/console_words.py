"""The words of the mesh's console, its own and those of the debugger's prompt, and its help."""

from __future__ import annotations

from dataclasses import dataclass

from meshrt.debug.prompt.commands.table import COMMANDS, PDB_WORDS, find, help_text
from meshrt.errors import UsageError

__all__ = ["STEPS", "check", "console_help"]


@dataclass(frozen=True, slots=True)
class _Word:
    """One of the console's own."""

    names: tuple[str, ...]
    #: The request of DAP.
    request: str
    summary: str
    details: str = ""

    @property
    def text(self) -> str:
        """Its help."""
        also = f"  (also: {', '.join(self.names[1:])})" if self.names[1:] else ""
        return f"{self.names[0]} [ranks(...)]{also}\n{self.summary}" + (f"\n{self.details}" if self.details else "")


#: Those of pdb, and what an IDE has a button for.
_OWN = (
    _Word(("n", "next"), "next", "step ranks that stand in the IDE, over calls"),
    _Word(("s", "step"), "stepIn", "step them into a call"),
    _Word(("r", "return"), "stepOut", "step them out of their function"),
    _Word(
        ("c", "cont", "continue"),
        "continue",
        "let them go on, and take back a pause that has not stopped anything yet",
        "With an actor, `continue ACTOR [ranks(...)]`, or while nothing stands in the IDE: the ranks at prompts.",
    ),
    _Word(
        ("pause",),
        "pause",
        "stop ranks that the IDE has where they are",
        "What they evaluate meanwhile is interrupted.",
    ),
)
#: Word -> the request of DAP.
STEPS = {name: word.request for word in _OWN for name in word.names}
#: Commands of the prompt: those for ranks that the IDE does not have, and those that are not valid here.
_OUTSIDE = ("attach", "interrupt")
_NOT_HERE = {
    "wait": "wait is for the prompt: an IDE shows what stops, and would obey no other line meanwhile",
    "quit": "quit is for the prompt: this console ends with its session, which Disconnect leaves",
}


def check(word: str) -> None:
    """Raise UsageError for a command of the prompt that is not valid here."""
    for name, why in _NOT_HERE.items():
        if word in (name, *find(name).aliases):
            raise UsageError(why)


def console_help(topic: str = "") -> str:
    """Return the help of one word, or of all if ``topic`` is "". Raises UsageError for an unknown word."""
    if topic in STEPS:
        return next(word.text for word in _OWN if topic in word.names)
    check(topic)
    if topic in PDB_WORDS:
        raise UsageError(f"{topic!r} is a command of pdb: for a rank that stands at a prompt, once you attach to it")
    if topic:
        return help_text(topic)
    width = max(len(command.name) for command in COMMANDS)
    shown = [command for command in COMMANDS if command.name not in (*STEPS, *_NOT_HERE)]
    lines = ["ranks that the IDE has, all or some of them:"]
    lines += [f"{word.names[0]:{width}}  {word.summary}" for word in _OWN]
    lines.append("all ranks:")
    lines += [f"{command.name:{width}}  {command.summary}" for command in shown if command.name not in _OUTSIDE]
    lines.append("ranks that the IDE does not have:")
    lines += [f"{command.name:{width}}  {command.summary}" for command in shown if command.name in _OUTSIDE]
    return "\n".join([*lines, "`help WORD` shows how one is written"])
