"""``wait``: until ranks are stopped."""

from __future__ import annotations

from meshrt.commandline.command import Argument, Arguments, Command, Group, Kind, Offer, Outcome, ranks
from meshrt.commandline.numbers import seconds
from meshrt.debug.operations import Wait
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.text import count_ranks

__all__ = ["COMMAND"]


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
    "wait until these ranks are stopped (60 seconds by default)",
    _wait,
    Group.CONTROL,
    arguments=(
        Argument("actor", Kind.ACTOR, required=True),
        ranks(),
        Argument("seconds", convert=seconds, default=60.0),
    ),
    details=(
        "Without ranks(...), waits for all ranks of the actor; without SECONDS, for 60 seconds. For scripts: the\n"
        "actor may be spawned later. Fails if some ranks have not stopped in time."
    ),
    record={"stopped": "ranks", "missing": "ranks that are not stopped"},
    offer=Offer.PROMPT | Offer.SHELL,
)
