"""``quit``: the prompt ends, and changes nothing."""

from __future__ import annotations

from meshrt.commandline.command import Arguments, Command, Offer, Outcome
from meshrt.debug.prompt.context import Prompt

__all__ = ["COMMAND"]


def _quit(prompt: Prompt, arguments: Arguments) -> Outcome:
    prompt.leave()
    return Outcome()


COMMAND = Command(
    "quit",
    "leave the debugger; ranks that are stopped stay stopped",
    _quit,
    aliases=("q", "exit"),
    details="Ctrl-D does the same. The debugger can be opened again at any time.",
    offer=Offer.PROMPT,
)
