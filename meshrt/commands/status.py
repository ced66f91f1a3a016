"""``status``: the whole program in a few lines."""

from __future__ import annotations

from meshrt.commandline.command import Arguments, Command, Group, Outcome
from meshrt.debug.operations import Status
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.tables import status

__all__ = ["COMMAND"]


def _status(prompt: Prompt, arguments: Arguments) -> Outcome:
    found = prompt.client.ask(Status(hosts=True))
    return Outcome(status(found, found.terminals, found.own), plain(found))


COMMAND = Command(
    "status",
    "say what the whole program does, in a few lines",
    _status,
    Group.LOOK,
    record={
        "meshes": '`[{"mesh", "name", "sizes", "alive", "actors", "gone", "silent"}]`',
        "groups": '`[{"actor", "mesh", "state", "place", "note", "ranks", "count", "since", "latest"}]` (since when '
        "the first of them, and the last, is in it)",
        "waits": "with `waits_left_out`: [who waits for whom](#who-waits-for-whom)",
        "terminals": "pids",
        "own": "which of them asks",
    },
)
