"""``wait``: until ranks are stopped."""

from __future__ import annotations

import re

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Offer, Outcome, ranks
from meshrt.debug.operations import Wait
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.text import count_ranks
from meshrt.errors import UsageError

__all__ = ["COMMAND"]


def _seconds(word: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", word):
        raise UsageError(f"{word!r} is not a valid number of seconds")
    return float(word)


def _wait(prompt: Prompt, arguments: Arguments) -> Outcome:
    seconds = arguments["seconds"]
    found = prompt.client.ask(Wait(**arguments), timeout=seconds + 10)
    if found.missing:
        text = f"not stopped within {seconds:g} s: {count_ranks(found.missing)}"
        text += f"; stopped: {count_ranks(found.stopped)}" if found.stopped else ""
        return Outcome(text, plain(found), ok=False)
    return Outcome(f"stopped: {count_ranks(found.stopped)}", plain(found))


COMMAND = Command(
    "wait",
    "wait until these ranks are stopped (60 seconds, unless said)",
    _wait,
    Group.CONTROL,
    arguments=(
        Argument("actor", Kind.ACTOR, required=True),
        ranks(),
        Argument("seconds", convert=_seconds, default=60.0),
    ),
    details=(
        "Without ranks(...) all ranks of the actor are meant; without SECONDS 60. For scripts: the actor may be\n"
        "spawned later. Not all stopped in time is an error."
    ),
    record={"stopped": "ranks", "missing": "ranks that are not stopped"},
    offer=Offer.PROMPT | Offer.SHELL,
)
