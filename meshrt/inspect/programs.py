"""The running programs of this user: how they are named and described. For commands, on their standard streams."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from meshrt.errors import UsageError
from meshrt.show.status import CommandUsageError, complain
from meshrt.show.text import cut, since
from meshrt.transport.directories import ended_run, failed, in_use, runs
from meshrt.transport.tools import Program, programs

__all__ = ["NoProgram", "choose", "command_of", "describe", "meant", "named", "stopped_by_signal", "telling_slow"]

#: Seconds without an answer after which the user is told what the command waits for.
SLOW_SECONDS = 2.0
#: Characters of an id that are enough, if no other one begins with them.
_LEAST = 4
#: Most characters of a command line that are shown.
_COMMAND = 100


class NoProgram(CommandUsageError):
    """It is not clear which program is meant, or there is none.

    Attributes:
        choices: The programs that run.
    """

    def __init__(self, why: str, choices: Sequence[Program] = ()) -> None:
        super().__init__(why)
        self.choices = choices
        self.facts = {
            "programs": [
                {"pid": each.pid, "run_id": each.run_id, "argv": each.argv, "cwd": each.cwd, "started": each.started}
                for each in choices
            ]
        }


def command_of(program: Program, limit: int = _COMMAND) -> str:
    """Return the command line of a program, at most ``limit`` characters of it; of the interpreter its name alone.

    What `meshrt` itself runs begins with that word, however it was started: its script is what tells it from others.
    """
    words = [os.path.basename(word) for word in program.argv[:1]] + program.argv[1:]
    started = 3 if words[1:3] == ["-m", "meshrt"] else 2 if os.path.basename("".join(words[1:2])) == "meshrt" else 0
    words = ["meshrt", *words[started:]] if started else words
    command = " ".join(shlex.join(words).split())  # what follows -c may have many lines
    return cut(command, limit)


def describe(program: Program) -> str:
    """Return one line about a program, from the data in its directory."""
    where = f"in {program.cwd}, since {since(program.started)}"
    return f"pid {program.pid}: {command_of(program)} ({where}, id {program.run_id})"


def named(wanted: str, found: Sequence[Program]) -> Program | None:
    """Return the program that ``wanted`` names: by its pid, its id, its run directory, or the beginning of its id."""
    for program in found:
        if wanted in (str(program.pid), program.run_id, str(program.run_directory), program.run_directory.name):
            return program
    begun = [program for program in found if len(wanted) >= _LEAST and program.run_id.startswith(wanted)]
    return begun[0] if len(begun) == 1 else None


def meant(words: Sequence[str]) -> tuple[str, str]:
    """Return run and actor of ``[RUN] [ACTOR]``: a lone word that no program has, now or before, is actor or mesh.

    Raises UsageError: the numbers of ranks follow an actor.
    """
    run, actor = (*words, "", "")[:2]
    if actor.isdigit() and not run.isdigit() and not _known(run):
        raise UsageError(f"ranks of {run} are written --ranks {actor}, or 'ranks({actor})'")
    if not run or actor or run.isdigit() or "/" in run:
        return run, actor
    return (run, "") if _known(run) else ("", run)


def _known(run: str) -> bool:
    """Whether a program has that name, now or before."""
    return named(run, programs()) is not None or ended_run(run) is not None


def choose(wanted: str, *, how: str, asks: bool = True, ranks: bool = False) -> Program:
    """Return the program named ``wanted``; without a name, the only running one, or the one that the user picks.

    Args:
        wanted: As in `named`; "": no name was given.
        how: How to name a program on the command line, for messages.
        asks: Whether a user is there to read the list of programs.
        ranks: Whether a number may have been meant as a rank, which is written ``--ranks``.
    Raises:
        NoProgram: There is none, or there are several and no user to ask.
        UsageError: The directory of the programs is not safe.
        EOFError, KeyboardInterrupt: The user leaves.
    """
    found = sorted(programs(), key=lambda program: -program.started)
    if wanted:
        program = named(wanted, found)
        if program is None:
            raise _no_such(wanted, found, ranks=ranks)
        return program
    if not found:
        last = next((run for run in reversed(runs()) if not in_use(run)), None)
        hint = "" if last is None else f"; the last one was {last.name.rpartition('-')[2]}: {_afterwards(last)}"
        raise NoProgram(f"no meshrt program of this user is running{hint}")
    if len(found) == 1:
        return found[0]
    if asks:
        for number, program in enumerate(found, 1):
            print(f"{number}  {describe(program)}", file=sys.stderr)
    if not (asks and sys.stdin and sys.stdin.isatty()):
        raise NoProgram(f"several programs are running; choose one with {how}", found)
    while True:
        answer = input("which program? ").strip()
        if answer.isdigit() and 0 < int(answer) <= len(found):
            return found[int(answer) - 1]
        picked = named(answer, found)
        if picked is not None:
            return picked
        print(f"expected a number from 1 to {len(found)}, or a pid", file=sys.stderr)


def _no_such(wanted: str, found: Sequence[Program], *, ranks: bool) -> NoProgram:
    """Return why none of the programs that run is ``wanted``."""
    ended = ended_run(wanted)
    if ended is not None:
        return NoProgram(f"program {ended.name.rpartition('-')[2]} has ended; {_afterwards(ended)}", found)
    running = "; ".join(map(describe, found)) or "none is running"
    if found:
        running = f"name one by its id or its pid: {running}"
    what = f"PID {wanted}" if wanted.isdigit() and len(wanted) < 8 else repr(wanted)
    rank = f" (to select a rank: --ranks {wanted})" if ranks and wanted.isdigit() and len(wanted) < 5 else ""
    return NoProgram(f"{what} is not a meshrt program{rank}; {running}", found)


def _afterwards(run: Path) -> str:
    """Return which commands show a program that has ended."""
    run_id = run.name.rpartition("-")[2]
    if failed(run):
        return f"meshrt postmortem {run_id} shows what failed there, and meshrt logs {run_id} what it has printed"
    return f"meshrt logs {run_id} shows what it has printed"


def stopped_by_signal(program: Program) -> bool:
    """Whether the process of a program of this machine was stopped by a signal."""
    if program.via:
        return False
    try:
        return psutil.Process(program.pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False  # it has ended: its connection reports this


@contextlib.contextmanager
def telling_slow(program: Program) -> Iterator[None]:
    """Tell the user what the command waits for, if a program takes more than `SLOW_SECONDS` to answer."""

    def tell() -> None:
        if not program.via and not psutil.pid_exists(program.pid):
            return  # the connection reports this
        go_on = f"stopped by a signal; kill -CONT {program.pid} resumes it"
        why = go_on if stopped_by_signal(program) else "its machine may be busy"
        complain(f"meshrt: process {program.pid} does not answer yet ({why}); waiting, Ctrl-C ends the wait")

    slow = threading.Timer(SLOW_SECONDS, tell)
    slow.daemon = True
    slow.start()
    try:
        yield
    finally:
        slow.cancel()
