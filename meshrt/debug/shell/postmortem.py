"""``meshrt postmortem``: the report of a failure; or, with a mode, what the ranks of a running program do."""

from __future__ import annotations

from meshrt.commandline.command import Arguments, Offer
from meshrt.commandline.table import COMMANDS, Invocation
from meshrt.debug.protocol import MODES
from meshrt.errors import UsageError
from meshrt.failure import postmortem

__all__ = ["show"]


def show(given: Arguments) -> int:
    """Run the command. Returns the exit code."""
    if not given["mode"] and not given["modes"]:
        if given["actor"]:
            raise UsageError(f"unexpected argument {given['actor']!r}: an actor follows one of {', '.join(MODES)}")
        return postmortem.show(given)
    from meshrt.debug.prompt.entry import run_in_shell  # start-up: a report needs no prompt

    invocation = Invocation(COMMANDS.find("postmortem", Offer.SHELL), given, Offer.SHELL)
    line = " ".join(filter(None, ("postmortem", given["mode"] or "--modes", given["actor"])))
    return run_in_shell(invocation, given["run"], line, json=given["json"])
