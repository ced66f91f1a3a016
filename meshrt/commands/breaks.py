"""``breaks``: the breakpoints that are set."""

from __future__ import annotations

from meshrt.commandline.command import Arguments, Command, Group, Outcome
from meshrt.debug.operations import Breaks
from meshrt.debug.prompt.context import Prompt, plain
from meshrt.debug.prompt.tables import breakpoints, problems

__all__ = ["COMMAND"]


def _breaks(prompt: Prompt, arguments: Arguments) -> Outcome:
    found = prompt.client.ask(Breaks())
    lines = [breakpoints(found.breaks, found.meshes), *problems(found.problems, found.meshes)]
    return Outcome("\n".join(lines), plain(found))


COMMAND = Command(
    "breaks",
    "show breakpoints, and how often each rank reached them; `b` at a rank's prompt shows that rank's own",
    _breaks,
    Group.BREAKS,
    record={
        "breaks": '`[{"id", "place", "condition", "once", "selection", "ranks", "goes_with", "hits", "lines", '
        '"problems", "left", "pending"}]` (`"hits"`: `{count: ranks}`; `"lines"`: `{line that it was moved to: '
        'ranks}`; `"problems"`: `{what its condition has raised, or why it has no line: ranks}`; `"left"`: ranks from '
        'which the IDE of `goes_with` has disconnected: it has no effect there; `"pending"`: ranks where its code is '
        "not loaded, if no rank has loaded it)",
        "problems": "`{reason: ranks}` of ranks that have not answered",
        "meshes": "the names of all meshes by their id",
    },
)
