"""A program in which one system call after the other fails, in one of its processes, and what becomes of it.

Run with the library of `tests.support.callfaults`. Each cell is a process, a call, an error and the how-manieth call
fails. In each, a round of work is done: an endpoint fails, a tool asks, calls, an array, an object that is spilled, a
new actor, a new mesh. Then another one, undisturbed. Other cells are of a program that begins, or ends.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import gc
import json
import os
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

import meshrt
from meshrt import ActorError, ActorMesh, CallTimeout, MeshError, ProcMesh, endpoint, proc_mesh
from meshrt.transport.liveness import VERDICT_SECONDS
from meshrt.transport.process import current_runtime
from meshrt.transport.tools import connect, programs
from meshrt.wire.clients import ActorsOf
from tests.faults.actors import Victim
from tests.faults.watch import agents, is_alive, runtime_directories
from tests.support.callfaults import ERRORS, LEFT_OUT, LEFT_OUT_OF_HOSTS, OF_FILES, CallFaults
from tests.support.footprint import marked_processes

__all__ = ["LONG", "Cell", "main", "run_cells", "since"]

#: Seconds that a part of the work may take on a loaded machine: until a link to another one is lost, and more.
LONG = VERDICT_SECONDS + 10


#: How else it is said that a call has failed: by Python, and in words of meshrt.
SAID = {"pthread_create": ["can't start new thread"], "fcntl64": ["no file descriptor left"]}


class Worker(Victim):
    """What the rounds call."""

    @endpoint
    def print(self, text: str) -> None:
        print(text, flush=True)

    @endpoint
    def fail(self, text: str) -> None:
        raise ValueError(text)

    @endpoint
    def look(self, run_id: str) -> list[str]:
        """Return the actors of the program, as it tells a terminal."""
        (program,) = [each for each in programs() if each.run_id == run_id]
        with contextlib.closing(connect(program)) as tools:
            return [actor.name for actor in tools.ask(ActorsOf(), LONG).actors]

    @endpoint
    def total(self, array: np.ndarray) -> int:
        return int(array.sum())


@dataclass
class Cell:
    """One fault, and what was seen."""

    process: str
    function: str
    error: str
    nth: int
    #: Whether that call was made.
    met: bool = False
    #: Parts of the work that failed: what they raised.
    failed: dict[str, str] = field(default_factory=dict)
    #: What was printed meanwhile.
    printed: str = ""
    #: What is wrong about it; "" if nothing is.
    wrong: str = ""

    @property
    def kind(self) -> tuple[str, str, str]:
        """As in `OF_FILES` and `LEFT_OUT`."""
        return self.process.split()[-1], self.function, self.error

    def judge(self) -> None:
        """A failure names what has failed."""
        if self.failed and not self.is_named():
            self.complain("no error names it")
        for name, text in self.failed.items():
            if text.startswith(("HANGS", "ESCAPES")):
                self.complain(f"{name} {text.split()[0].lower()}")

    def is_named(self) -> bool:
        """Whether an error, or a line on the terminal, says what has failed."""
        said = "\n".join((*self.failed.values(), self.printed)).lower()
        names = [self.error, os.strerror(getattr(errno, self.error)), *SAID.get(self.function, ())]
        return any(name.lower() in said for name in names)

    def complain(self, text: str) -> None:
        self.wrong = f"{self.wrong}; {text}" if self.wrong else text


class Site:
    """The mesh that is there all the time, and the rounds."""

    def __init__(self, faults: CallFaults, output: Path) -> None:
        self.faults = faults
        self.output = output
        self.number = 0
        #: Who runs this program, and is not of it.
        self.others = set(marked_processes())
        self.make()

    def make(self) -> None:
        """Make the mesh."""
        self.mesh: ProcMesh = proc_mesh(n=2)
        self.workers: ActorMesh[Worker] = self.mesh.spawn("worker", Worker).get(LONG)
        self.pids = self.workers.pid.call().get(LONG).values()
        self.agent, *others = agents()  # that of rank 0, and those of other hosts
        self.alone = not others

    def round(self) -> dict[str, str]:
        """Do all parts of the work; returns what has failed, and how."""
        self.number += 1
        parts = [self._fail, self._call, self._array, self._spill, self._actor, self._mesh]
        if self.alone:  # tools find the program on the machine of the script alone
            parts.insert(1, self._look)
        return self._failures({part.__name__.strip("_"): part for part in parts})

    @staticmethod
    def _failures(parts: dict[str, Callable[[], object]]) -> dict[str, str]:
        failed: dict[str, str] = {}
        for name, part in parts.items():
            try:
                part()
            except CallTimeout as error:
                failed[name] = f"HANGS {error}"
            except (MeshError, OSError, MemoryError) as error:
                failed[name] = "".join(traceback.format_exception_only(error)) + str(error.__cause__ or "")
            except BaseException:
                failed[name] = f"ESCAPES {traceback.format_exc()}"
        return failed

    def _fail(self) -> None:
        """The failure is written to a file, a moment later."""
        try:
            self.workers.fail.call(f"failure {self.number}").get(LONG)
        except ActorError as error:
            if f"failure {self.number}" in str(error):
                return
            raise
        raise AssertionError("a call of an endpoint that fails has succeeded")

    def _look(self) -> None:
        """From a rank: what fails in the root is what the root does for a terminal."""
        assert "worker" in self.workers.slice(n=0).look.call_one(current_runtime().program_id).get(LONG)

    def _call(self) -> None:
        calls = [self.workers.echo.call(index) for index in range(5)]
        assert [call.get(LONG).values() for call in calls] == [[index] * 2 for index in range(5)]
        self.workers.print.call(f"line {self.number}").get(LONG)

    def _array(self) -> None:
        array = np.full(1 << 17, self.number)
        assert all(value.sum() == array.sum() for value in self.workers.echo.call(array).get(LONG).values())

    def _spill(self) -> None:
        """There is no room for it in the store."""
        array = np.full(3 << 19, self.number)
        totals = self.workers.total.call(meshrt.put(array, spill=True)).get(LONG).values()
        assert totals == [int(array.sum())] * 2

    def _actor(self) -> None:
        actor = self.mesh.spawn(f"actor{self.number}", Worker)
        try:
            assert actor.pid.call().get(LONG).values() == self.pids
        finally:
            actor.stop().get(LONG)

    def _mesh(self) -> None:
        with proc_mesh(n=2) as mesh:
            assert mesh.spawn("worker", Worker).echo.call("in").get(LONG).values() == ["in"] * 2

    def begin_anew(self) -> dict[str, str]:
        """End the program, and begin it again: directories, agents, ranks; returns what has failed, and how."""
        return self._failures({"begin": self.make, "call": self._call})

    def end(self) -> dict[str, str]:
        """End the program; returns what has failed, and how."""
        return self._failures({"end": lambda: meshrt.shutdown_context(0.5)})

    def target(self, process: str) -> int:
        """Return the pid that stands for the process; negative: that of the parent."""
        if process.endswith("root"):
            return os.getpid()
        if process == "new agent":
            return -os.getpid()
        if process == "rank":
            return int(self.pids[0])
        return self.agent if process.endswith("agent") else -self.agent

    def run_beginning(self, cell: Cell) -> None:
        """Run one cell of a program that begins: it begins, or says why not, and the next one does."""
        with self._program_of(cell):
            with self._failing(cell):
                cell.failed = self.begin_anew()
            cell.met = self.faults.failed > 0

    def run_ending(self, cell: Cell) -> None:
        """Run one cell of a program that ends: it ends, or says what has failed, and leaves nothing."""
        with self._program_of(cell):
            if failed := self.begin_anew():
                cell.complain(f"before: {failed}")
            self.round()
            with self._failing(cell):
                cell.failed = self.end()
            cell.met = self.faults.failed > 0

    @contextlib.contextmanager
    def _program_of(self, cell: Cell) -> Iterator[None]:
        """A block with a program of its own; nothing of it is left, and the next program begins."""
        start = self.output.stat().st_size
        meshrt.shutdown_context(0.5)
        before = set(_open_files(os.getpid()))
        yield
        meshrt.shutdown_context(0.5)
        deadline = time.monotonic() + LONG
        while True:
            gc.collect()  # what a traceback has kept open
            left, more = self._left(), set(_open_files(os.getpid())) - before
            if not (left or more) or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        cell.printed = since(self.output, start)
        cell.judge()
        if left:
            cell.complain(f"left behind: {left}")
        if more:
            cell.complain(f"open since: {more}")
        if failed := self.begin_anew():
            cell.complain(f"afterwards: {failed}")

    def _failing(self, cell: Cell) -> contextlib.AbstractContextManager[None]:
        error = getattr(errno, cell.error)
        return self.faults.failing(
            self.target(cell.process), cell.function, error, skip=cell.nth, files=cell.kind in OF_FILES
        )

    def _left(self) -> list[object]:
        return [*(set(marked_processes()) - self.others), *runtime_directories()]

    def descriptors(self) -> dict[str, list[str]]:
        """Return what the processes that stay have open."""
        pids = {"root": os.getpid(), "agent": self.agent, "rank 1": self.pids[1]}
        return {name: sorted(_open_files(pid)) for name, pid in pids.items()}

    def run(self, cell: Cell, before: dict[str, list[str]]) -> dict[str, list[str]]:
        """Run one cell; returns the descriptors afterwards."""
        start = self.output.stat().st_size
        cell.failed = self._disturbed_round(cell)
        cell.met = self.faults.failed > 0
        agent, pids, disturbed = self.agent, self.pids, self.number
        left = self.round()
        cell.printed = self._printed(start, left)
        cell.judge()
        if "call" not in cell.failed and f"line {disturbed}\n" not in cell.printed and not cell.is_named():
            cell.complain(f"what a rank has printed is lost: line {disturbed}")
        if "call" not in left and f"line {self.number}\n" not in cell.printed:
            cell.complain(f"afterwards, what a rank has printed is lost: line {self.number}")
        if not is_alive(agent):
            cell.complain("the agent has ended")
        dead = [rank for rank, pid in enumerate(pids) if not is_alive(pid)]
        if [rank for rank in dead if rank != 0 or cell.process != "rank"]:
            cell.complain(f"ranks {dead} have ended")
        if left:
            if not dead:
                cell.complain(f"afterwards: {left}")
            self.mesh.stop(0).get(LONG)
            self.make()
            left = self.round()
            if left:
                cell.complain(f"in a new mesh: {left}")
            return self.descriptors()
        after = self._settled(before)
        if _more(after, before):
            # Again: a chunk of shared memory more is kept for the next array, what leaks does so each time.
            self._disturbed_round(cell)
            self.round()
            again = self._settled(after)
            if more := _more(again, after):
                cell.complain(f"open since: {more}")
            return again
        return after

    def _printed(self, start: int, failed: dict[str, str]) -> str:
        """Return what was printed since ``start``, when the line of the last round has come, or will not."""
        deadline = time.monotonic() + LONG
        while True:
            printed = since(self.output, start)
            if "call" in failed or f"line {self.number}\n" in printed or time.monotonic() > deadline:
                return printed
            time.sleep(0.01)

    def _disturbed_round(self, cell: Cell) -> dict[str, str]:
        with self._failing(cell):
            return self.round()

    def _settled(self, before: dict[str, list[str]]) -> dict[str, list[str]]:
        """Return what is open, as soon as that is no more than before, or after a while."""
        deadline = time.monotonic() + 2
        while _more(after := self.descriptors(), before) and time.monotonic() < deadline:
            time.sleep(0.01)
        return after


def _open_files(pid: int) -> Iterator[str]:
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield re.sub(r"[0-9a-f:]*\d{3}[0-9a-f]*", "N", os.readlink(f"/proc/{pid}/fd/{number}"))


def _more(after: dict[str, list[str]], before: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what is open more often than before, in the processes that have more open at all."""
    found = {}
    for name, files in after.items():
        if len(files) > len(before[name]):
            found[name] = list((Counter(files) - Counter(before[name])).elements())
    return found


def since(path: Path, start: int) -> str:
    """Return what was written to a file behind its first bytes."""
    with path.open(errors="replace") as file:
        file.seek(start)
        return file.read()


def _places(count: int, most: int) -> list[int]:
    """Return which calls fail, of so many that are made: the first one, and some that are spread over the rest."""
    if count <= most:
        return list(range(count))
    return sorted({round(index * (count - 1) / max(1, most - 1)) for index in range(most)})


def main(control: str, output: str, process: str, most: int, functions: str) -> None:
    """Run all cells of one process, and print each as a line to the descriptor ``TELL``."""
    site = Site(CallFaults(control), Path(output))
    work, run = {
        "new root": (site.begin_anew, site.run_beginning),
        "new agent": (site.begin_anew, site.run_beginning),
        "ending root": (site.end, site.run_ending),
        "ending agent": (site.end, site.run_ending),
    }.get(process, (site.round, None))
    for _ in range(2):
        site.round()  # what is loaded, opened and kept the first time
    counts: dict[bool, dict[str, int]] = {}
    for files in (False, True):
        if work == site.begin_anew:
            meshrt.shutdown_context(0.5)
        with site.faults.counting(site.target(process), files=files):
            failed = work()
        assert not failed, failed
        counts[files] = site.faults.counts()
        if work == site.end:
            site.begin_anew()
    if run is not None:
        run_cells(process, counts, most, functions, run, elsewhere=not site.alone)
        return
    before = site.descriptors()

    def run_in_round(cell: Cell) -> None:
        nonlocal before
        before = site.run(cell, before)

    run_cells(process, counts, most, functions, run_in_round, elsewhere=not site.alone)


def run_cells(
    process: str,
    counts: Mapping[bool, Mapping[str, int]],
    most: int,
    functions: str,
    run: Callable[[Cell], object],
    *,
    elsewhere: bool = False,
) -> None:
    """Run the cells of one process, and print each as a line to the descriptor ``TELL``.

    Args:
        counts: How often each function is called, by whether only what is done with files counts.
        most: How many calls of each function fail, at most.
        functions: Those that fail, with commas; "": all.
        elsewhere: Ranks are on other hosts.
    """
    report = int(os.environ["TELL"])
    cells = [
        Cell(process, name, errno.errorcode[number], 0) for name in counts[False] for number in ERRORS.get(name, ())
    ]
    for each in cells:
        if each.kind in LEFT_OUT or (elsewhere and each.kind in LEFT_OUT_OF_HOSTS):
            continue
        if functions and each.function not in functions.split(","):
            continue
        for nth in _places(counts[each.kind in OF_FILES].get(each.function, 0), most):
            cell = replace(each, nth=nth)
            os.write(report, (json.dumps({"begun": asdict(cell)}) + "\n").encode())
            faulthandler.dump_traceback_later(8 * LONG, exit=True)
            run(cell)
            faulthandler.cancel_dump_traceback_later()
            os.write(report, (json.dumps({"cell": asdict(cell)}) + "\n").encode())
    os.write(report, (json.dumps({"end": counts[False]}) + "\n").encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
