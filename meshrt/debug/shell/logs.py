"""``meshrt logs``: the last lines that the ranks of a program have printed, and those that follow."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from meshrt.commandline.command import Arguments
from meshrt.debug.operations import JobAnswer, JobReport
from meshrt.debug.prompt.answers import Answers
from meshrt.debug.shell.following import Follower, Line
from meshrt.errors import MeshError, UsageError
from meshrt.escapes import coloured
from meshrt.inspect.operations import FindOutput
from meshrt.inspect.output import Tail, line_count, tails
from meshrt.inspect.programs import choose, meant, named, telling_slow
from meshrt.selection import Shape, fold_ranks, group_by_value, parse, resolve
from meshrt.show.paging import write_paged
from meshrt.show.records import LOGS, Recorder
from meshrt.show.status import ExitCode
from meshrt.show.streams import pause, write_out
from meshrt.transport import tools
from meshrt.transport.directories import ended_run, in_use, log_path

__all__ = ["show"]

#: Seconds between two looks at files that are followed, and between two requests for new ranks.
_LOOK = 0.2
_ASK = 1.0
#: Seconds to wait for the end of a program that has closed its connections.
_ENDING = 5.0
#: Writes new lines as JSON objects, or makes their text safe to show.
_Teller = Recorder | Callable[[str], str]
_NAME = re.compile(r"(.*)-([^-]+)\.(\d{1,9})\.log", re.DOTALL)


@dataclass(frozen=True)
class Printing:
    """The output files of ranks of one mesh, by base rank; ``label`` names the actor or the mesh.

    Ranks that ``joined`` have none: their launcher has their output.
    """

    label: str
    files: dict[int, Path]
    joined: bool = False


class _Running:
    """A running program: it is asked for its ranks."""

    def __init__(self, program: tools.Program) -> None:
        self.program = program
        self.directory = program.run_directory
        self.closed = threading.Event()
        with telling_slow(program):
            self._connection = tools.connect(program, on_close=self.closed.set)

    def printing(self, actor: str, ranks: str) -> list[Printing]:
        """Return the ranks whose output is wanted, with their files.

        Args:
            actor: Its ranks; "": all of the program.
            ranks: A selection; "": all.
        Raises:
            MeshError: No such actor or ranks.
            ConnectionError: The program has ended.
        """
        return [
            Printing(
                each.label,
                {rank: log_path(self.directory, each.name, each.mesh, rank) for rank in each.ranks},
                each.joined,
            )
            for each in self._connection.ask(FindOutput(actor, ranks)).printing
        ]

    def close(self) -> None:
        """Close the connection to the program."""
        self._connection.close()


class _Ended:
    """A program that has ended: its ranks are known from their files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def printing(self, mesh: str, ranks: str) -> list[Printing]:
        """Return the ranks whose output is wanted, with their files.

        Args:
            mesh: Name or id of a mesh; "": all.
            ranks: A selection by rank number alone; "": all.
        Raises:
            UsageError: No such mesh, or no output.
            SelectionError: No such ranks.
        """
        found: dict[tuple[str, str], dict[int, Path]] = {}
        for path in self.directory.glob("*.log"):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                found.setdefault((match[1], match[2]), {})[int(match[3])] = path
        wanted = {key: files for key, files in sorted(found.items()) if not mesh or mesh in key}
        if not wanted:
            there = ", ".join(sorted({name for name, _ in found}))
            if not there:
                raise UsageError(
                    "the program has ended, and there is no output of its ranks: the ranks printed nothing, or "
                    "the launcher that started the ranks has their output"
                )
            raise UsageError(f"the program has ended and has no output of a mesh {mesh!r}; there are meshes: {there}")
        chosen = []
        for (name, mesh_id), files in wanted.items():
            members = _by_number(ranks, files) if ranks else sorted(files)
            label = mesh_id if sum(other == name for other, _ in wanted) > 1 else name
            chosen.append(Printing(label or mesh_id, {rank: files[rank] for rank in members if rank in files}))
        return chosen

    def close(self) -> None:
        """Do nothing: no file is open."""


def _by_number(ranks: str, files: dict[int, Path]) -> Iterable[int]:
    # The shape of an ended mesh is not known: its ranks have numbers only, here as one dimension.
    return resolve(parse(ranks), Shape.from_extent({"rank": max(files) + 1}))


def show(given: Arguments) -> int:
    """Run ``meshrt logs``. Returns the exit code."""
    count = line_count(given["lines"])
    source, actor = _meant([word for word in (given["run"], given["actor"]) if word], asks=not given["json"])
    recorder = Recorder(sys.stdout, LOGS) if given["json"] else None
    shown = str if given["raw"] else coloured
    with contextlib.closing(source):
        printing = source.printing(actor, given["ranks"])
        read = {each.label: tails(each.files, count) for each in printing}
        answers = _answers(read, {each.label for each in printing if each.joined})
        answers.check_against(None if given["diff"] == -1 else given["diff"])
        if recorder is not None:
            recorder({"command": "logs", "run_directory": str(source.directory), **answers.data()})
        elif printing:
            first = min((min(each) for each in read.values() if each), default=0)
            against = first if given["diff"] == -1 else given["diff"]
            text = answers.text(every=True, against=against, shown=shown) + "\n"
            if given["follow"]:
                write_out(sys.stdout, text)
            else:
                write_paged(sys.stdout, text, colours=False)
        if given["follow"] and isinstance(source, _Running):
            follower = Follower()
            for each in printing:
                follower.add(each.label, each.files, read[each.label])
            _follow(source, follower, actor, given["ranks"], recorder or shown)
        elif given["follow"]:
            print("meshrt logs: the program has ended; nothing will follow", file=sys.stderr)
        return ExitCode.FAILED if answers.ranks("refused") else ExitCode.OK


def _meant(words: list[str], *, asks: bool) -> tuple[_Running | _Ended, str]:
    """Return the program and the actor that ``[RUN] [ACTOR]`` name; actor "": all. ``asks``: as in `choose`."""
    run, actor = meant(words)
    if run:
        running = named(run, tools.programs())
        if running is not None:
            return _Running(running), actor
        directory = ended_run(run)
        if directory is not None:
            return _Ended(directory), actor
    return _Running(choose(run, how="meshrt logs RUN", asks=asks, ranks=True)), actor


def _answers(read: dict[str, dict[int, Tail]], joined: set[str]) -> Answers:
    answers = Answers()
    found_alike: list[JobAnswer] = []
    for label, found in read.items():
        if label in joined:
            found_alike.append(JobAnswer(label, "elsewhere", "", list(found)))
            continue
        shown = ((rank, (tail.kind, tail.problem or tail.text)) for rank, tail in found.items())
        found_alike += [JobAnswer(label, kind, text, ranks) for ranks, (kind, text) in group_by_value(shown)]
    answers.add(JobReport(found_alike, {}, done=True))
    return answers


def _follow(source: _Running, follower: Follower, actor: str, ranks: str, teller: _Teller) -> None:
    ask = time.monotonic() + _ASK
    while not source.closed.is_set():
        pause(sys.stdout, _LOOK)
        _tell(follower, teller)
        if time.monotonic() >= ask:
            ask = time.monotonic() + _ASK
            _look_for_more(source, follower, actor, ranks)
    # The last lines of its ranks may not be in the files yet.
    deadline = time.monotonic() + _ENDING
    while in_use(source.directory) and time.monotonic() < deadline:
        time.sleep(_LOOK)
    while _tell(follower, teller):
        pass
    print(f"meshrt logs: the program (pid {source.program.pid}) has ended", file=sys.stderr)


def _look_for_more(source: _Running, follower: Follower, actor: str, ranks: str) -> None:
    try:
        for each in source.printing(actor, ranks):
            follower.add(each.label, each.files, {})
    except (MeshError, OSError):
        return  # the mesh, or the program, has ended: there are no further ranks


def _tell(follower: Follower, teller: _Teller) -> bool:
    """Show the new lines. Returns whether there were any."""
    lines = follower.look()
    if isinstance(teller, Recorder):
        for line in lines:
            teller({"event": "line", "actor": line.label, "ranks": list(line.ranks), "text": line.text})
    elif lines:
        write_out(sys.stdout, teller("".join(f"[{_who(line, follower)}] {line.text}\n" for line in lines)))
    return bool(lines)


def _who(line: Line, follower: Follower) -> str:
    return f"{line.label} " * follower.several + fold_ranks(line.ranks)
