"""``status``: the whole program in a few lines."""

from __future__ import annotations

from meshrt.commandline.command import Arguments, Command, Group, Outcome
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.tables import status
from meshrt.inspect.operations import ReadStatus

__all__ = ["COMMAND"]


def _status(prompt: Prompt, arguments: Arguments) -> Outcome:
    found = prompt.client.ask(ReadStatus(hosts=True))
    return Outcome(status(found), plain(found))


COMMAND = Command(
    "status",
    "show what the whole program does, in a few lines",
    _status,
    Group.LOOK,
    record={
        "meshes": '`[{"mesh", "name", "sizes", "alive", "actors", "gone", "silent"}]`',
        "groups": '`[{"actor", "mesh", "state", "place", "note", "ranks", "count", "since", "latest"}]` (`since`, '
        "`latest`: when the first and the last of the ranks entered this state)",
        "waits": "with `waits_left_out`: [who waits for whom](#who-waits-for-whom)",
        "unread": "[errors that nobody has read](#errors-that-nobody-has-read)",
        "terminals": "pids of the connected terminals",
        "own": "the pid of the terminal that asks",
    },
)
