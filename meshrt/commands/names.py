"""``names``: what can be typed as ACTOR, as a dimension, and as the rank of ``attach``."""

from __future__ import annotations

from meshrt.commandline.command import Arguments, Command, Group, Outcome
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.inspect.operations import Names

__all__ = ["COMMAND"]


def _names(prompt: Prompt, arguments: Arguments) -> Outcome:
    found = prompt.client.ask(Names())
    stopped = {
        actor: f"  stopped ranks: {', '.join(map(str, ranks))}" if ranks else ""
        for actor, ranks in found.stopped.items()
    }
    lines = [actor + ranks for actor, ranks in stopped.items()]
    dims = ", ".join(found.dims)
    text = "\n".join([*(lines or ["no actor yet"]), *([f"dimensions: {dims}"] if dims else [])])
    return Outcome(text, plain(found))


COMMAND = Command(
    "names",
    "show the names of actors and dimensions that can be typed",
    _names,
    Group.LOOK,
    record={
        "actors": "names of the actors",
        "dims": "labels of dimensions",
        "stopped": "`{actor: [rank, ...]}`: the numbers of the stopped ranks",
    },
)
