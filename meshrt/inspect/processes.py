"""``meshrt where --pid``: processes that have never heard of meshrt, as ranks in the order in which they are named."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from msgspec import to_builtins

from meshrt.commandline.command import Arguments
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.facts import Unanswered
from meshrt.inspect.merged import MergedStacks
from meshrt.inspect.pyspy import ask
from meshrt.inspect.text import render_stacks
from meshrt.inspect.tree import StackAnswer, Stacks
from meshrt.selection import Shape
from meshrt.show.paging import write_paged
from meshrt.show.records import DEBUG, Recorder
from meshrt.show.status import ExitCode
from meshrt.show.table import Room, columns, table
from meshrt.transport.foreign import command_of

__all__ = ["show"]

_MESH, _NAME = "processes", "these processes"
#: Characters of a command that remain where the terminal is narrow.
_COMMAND = 20


def show(given: Arguments) -> int:
    """Run the command. Returns the exit code."""
    pids: list[int] = given["pids"]
    if twice := {pid for pid in pids if pids.count(pid) > 1}:
        raise UsageError(f"PID {min(twice)} is given twice")
    commands = [command_of(pid) for pid in pids]
    answers = ask(_MESH, pids, verbose=given["verbose"])
    failed = [each for each in answers if isinstance(each, Unanswered)]
    if len(failed) == len(pids):
        why = "\n".join(dict.fromkeys(each.why for each in failed))
        raise (UsageError if all(each.kind == "gone" for each in failed) else MeshError)(why)
    stacks = _merged(answers, len(pids), verbose=given["verbose"])
    if given["json"]:
        processes = [{"rank": rank, "pid": pid, "command": commands[rank]} for rank, pid in enumerate(pids)]
        facts = {"command": "where", "line": " ".join(sys.argv[1:]), "ok": not failed, "processes": processes}
        Recorder(sys.stdout, DEBUG)({**facts, **to_builtins(stacks)})
    else:
        rows = [(rank, pid, commands[rank]) for rank, pid in enumerate(pids)]
        room = Room(columns(), wrap={"COMMAND": _COMMAND})
        lines = table(("RANK", "PID", "COMMAND"), rows, room, right=("RANK", "PID"))
        write_paged(sys.stdout, "\n".join([*lines, render_stacks(stacks, columns=columns())]) + "\n")
    return ExitCode.FAILED if failed else ExitCode.OK


def _merged(answers: Sequence[StackAnswer], count: int, *, verbose: bool) -> MergedStacks:
    stacks = Stacks(verbose=verbose)
    stacks.expect(_MESH, _NAME, Shape.from_extent({"n": count}), range(count))
    for answer in answers:
        stacks.add(answer)
    return stacks.answer()
