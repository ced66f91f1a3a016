"""Processes that join, while one system call after the other fails in one of them, or in the program that they join.

Run as `tests.faults.failing_calls`, with its cells. In each, two processes join a program of their own. Whoever has not
joined has said why, and goes on; nothing is left when both have ended.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import psutil

import meshrt
from meshrt.spmd.membership import own_membership
from meshrt.transport.tools import connect, programs
from meshrt.wire.clients import ActorsOf
from tests.faults.failing_calls import LONG, Cell, run_cells, since
from tests.faults.watch import runtime_directories
from tests.support.callfaults import CallFaults
from tests.support.footprint import marked_processes

__all__ = ["main"]


class Joining:
    """A fork of this process, which joins as soon as it is told to.

    Attributes:
        status: How it has ended; 0 while it runs.
    """

    def __init__(self, name: str, rank: int) -> None:
        self.rank = rank
        self.status = 0
        self._told, tell = os.pipe()
        go_on, self._go_on = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._go_on)
            os.read(go_on, 1)
            os.write(tell, _outcome(name, rank).encode() + b"\n")
            os.read(go_on, 1)
            atexit._run_exitfuncs()
            os._exit(0)
        os.close(tell)
        os.close(go_on)

    def joins(self) -> str:
        """Let it join, and return why it has not; "": it has."""
        os.write(self._go_on, b"j")
        with open(os.dup(self._told)) as told:
            return str(json.loads(told.readline() or '"ESCAPES it has ended"'))

    def end(self) -> None:
        """Let it end."""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(self._go_on, b"e")
        os.close(self._go_on)
        os.close(self._told)
        self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _outcome(name: str, rank: int) -> str:
    try:
        joined = meshrt.join(name, mesh=2, rank=rank, wait=LONG)
        membership = own_membership()
        why = "" if joined or membership is None else membership.why
    except BaseException:
        why = f"ESCAPES {traceback.format_exc()}"
    return json.dumps(why)


class Site:
    """Pairs of processes that join, one after the other."""

    def __init__(self, faults: CallFaults, output: Path) -> None:
        self.faults = faults
        self.output = output
        self.number = 0
        #: Who runs this program.
        self.others = set(marked_processes())

    def count(self, process: str) -> dict[str, int]:
        """Return how often a process calls what can fail, while a pair joins."""
        with self._pair(process) as (pair, target):
            with self.faults.counting(target):
                failed = self._join(pair)
            assert not failed and not self._unseen(), failed
            return self.faults.counts()

    def run(self, cell: Cell) -> None:
        """Run one cell."""
        start = self.output.stat().st_size
        with self._pair(cell.process) as (pair, target):
            with self.faults.failing(target, cell.function, getattr(errno, cell.error), skip=cell.nth):
                cell.failed = self._join(pair)
            cell.met = self.faults.failed > 0
            if not cell.failed and (problem := self._unseen()):
                cell.complain(problem)
        if ends := [each.status for each in pair if each.status]:
            cell.complain(f"a process that joins has ended with {ends}")
        deadline = time.monotonic() + LONG
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.01)
        if left:
            cell.complain(f"left behind: {left}")
        cell.printed = since(self.output, start)
        cell.judge()

    @contextlib.contextmanager
    def _pair(self, process: str) -> Iterator[tuple[list[Joining], int]]:
        """A block with two processes; they end. Yields those that are to join, and the pid of the one that is meant."""
        self.number += 1
        pair = [Joining(f"worker{self.number}", rank) for rank in range(2)]
        try:
            if process == "first joining":
                yield pair, pair[0].pid
            else:  # the program is there
                assert not (why := pair[0].joins()), why
                found = {each.name(): each.pid for each in map(psutil.Process, self._of_the_program())}
                yield pair[1:], found["meshrt-agent"] if process == "agent" else pair[1].pid
        finally:
            for each in pair:
                each.end()

    def _of_the_program(self) -> list[int]:
        return [pid for pid in marked_processes() if pid not in self.others]

    def _join(self, joining: list[Joining]) -> dict[str, str]:
        """Let them join, one after the other; returns why one has not."""
        for each in joining:
            if why := each.joins():
                return {f"rank {each.rank}": why}
        return {}

    def _unseen(self) -> str:
        """Wait until tools see the two; returns what is wrong with what they see, or ""."""
        deadline = time.monotonic() + LONG
        while (wrong := self._wrong()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return wrong

    def _wrong(self) -> str:
        found = [program for program in programs() if program.pid not in self.others]
        if len(found) != 1:
            return f"{len(found)} programs are seen"
        with contextlib.closing(connect(found[0])) as tools:
            actors = [actor.name for actor in tools.ask(ActorsOf(), LONG).actors]
        return "" if actors == [f"worker{self.number}"] else f"the actors {actors} are seen"

    def _left(self) -> list[object]:
        return [*self._of_the_program(), *runtime_directories()]


def main(control: str, output: str, process: str, most: int, functions: str) -> None:
    """Run all cells of one process, and print each as a line to the descriptor ``TELL``."""
    site = Site(CallFaults(control), Path(output))
    site.count(process)  # what is loaded the first time
    run_cells(process, {False: site.count(process)}, most, functions, site.run)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
