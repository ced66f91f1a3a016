"""``help``: the commands, or one of them in full."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Kind, Offer, Outcome
from meshrt.commandline.table import COMMANDS
from meshrt.debug.prompt.context import Prompt

__all__ = ["COMMAND"]


def _help(prompt: Prompt, arguments: Arguments) -> Outcome:
    text = COMMANDS.help(arguments["topic"], Offer.PROMPT)
    return Outcome(text, {"text": text})


COMMAND = Command(
    "help",
    "show the commands, or one of them in full",
    _help,
    arguments=(Argument("topic", Kind.COMMAND, metavar="COMMAND"),),
    aliases=("h", "?"),
    main="meshrt.cli:show_help",
    record={"text": "the text that is shown"},
)
