"""A soak: a program under faults for minutes, what its processes use meanwhile, and a table of it all.

The program runs as generations. The first one lasts for most of the time, and is where slopes are measured; the others
are short. Each ends by a signal to the root alone, behind which nothing may be left.
"""

from __future__ import annotations

import collections
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tabulate import tabulate

from meshrt.transport.kernel import kernel_state
from tests.soak.chaos import Chaos, Clients
from tests.soak.samples import agents_of, files_below, ranks_of, segments_of, use_of
from tests.soak.trend import Trend, trend_of
from tests.support.footprint import marked_processes
from tests.support.programs import environment
from tests.support.waiting import holds_within

__all__ = ["Options", "Soak"]

PROGRAM = Path(__file__).with_name("program.py")
#: malloc returns memory as soon as it is free: what grows then is in use, and is not the allocator's.
ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
#: Seconds between two looks at all processes.
EVERY = 1.0
#: Seconds after which each kind of process has been there for a trend, by several times what that takes.
LONG_ENOUGH = 240.0
#: Seconds within which nothing is left of a program whose root was killed: twice the promise, on a busy machine.
GONE = 10.0
#: What a value may have grown by in a whole run and still count as noise. Bytes for memory and segments.
TOLERANCE = {
    "memory": 3 << 20, "descriptors": 3.0, "chunks": 20.0, "threads": 2.0, "segments": 32 << 20, "files": 40.0
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What a run is made of.

    Attributes:
        seconds: How long faults happen.
        seed: Of all that is drawn at random.
        busier: Multiplies the rates of all faults.
        disk: A small file system of its own, for what is written to disk; None where none can be made.
        folder: For everything else that is written.
    """

    seconds: float
    seed: int
    busier: float
    disk: Path | None
    folder: Path


@dataclass
class Series:
    """Samples of one value of one process."""

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def add(self, at: float, value: float) -> None:
        self.times.append(at)
        self.values.append(value)

    def trend(self) -> Trend | None:
        """Return the trend behind the first quarter, in which caches and arenas come to their size."""
        behind = len(self.times) // 4
        return trend_of(self.times[behind:], self.values[behind:])


class Soak:
    """One run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._dice = random.Random(options.seed)
        self.findings: list[str] = []
        home = options.disk or options.folder
        self._runtime = options.folder / "r"
        self._runs = home / "runs"
        settings = {"MESHRT_RUNTIME_DIR": str(self._runtime), "MESHRT_RUNS": str(self._runs)}
        os.environ.update(settings)  # `marked_processes` knows ours by it
        self._env = environment()
        self._clients = Clients(options.folder, self._env, self.findings.append)
        self._chaos = Chaos(options.seed, self._clients, options.disk, options.busier)
        #: Seconds of the generation in which slopes are measured.
        self._measured = 0.0
        self._series: dict[tuple[str, str], Series] = collections.defaultdict(Series)
        self._ended: collections.Counter[str] = collections.Counter()
        self._meshes = 0

    def run(self) -> bool:
        """Run all generations and print the table; return whether nothing was found."""
        end = time.monotonic() + self._options.seconds
        first = self._options.seconds * 0.75
        number = 0
        while (left := end - time.monotonic()) > 0:
            seconds = min(left, first if number == 0 else self._dice.uniform(0.05, 0.1) * self._options.seconds)
            self._generation(number, max(seconds, 1.0))
            number += 1
        self._clients.end()
        self._nothing_left()
        print(self.table())
        return not self.findings

    def _generation(self, number: int, seconds: float) -> None:
        report, output = self._options.folder / f"report.{number}", self._options.folder / f"output.{number}"
        with open(output, "wb") as file:
            program = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(report), str(self._options.seed + number)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**self._env, **ALLOCATOR},
                start_new_session=True,
            )
        try:
            self._watch(program, seconds, sampled=number == 0)
        finally:
            self._chaos.calm()
            self._end(program, output)
        if number == 0:
            self._measured = seconds
        self._take(report)

    def _watch(self, program: subprocess.Popen[bytes], seconds: float, *, sampled: bool) -> None:
        begun = time.monotonic()
        looked = begun
        while (now := time.monotonic()) < begun + seconds and program.poll() is None:
            self._chaos.look(program.pid)
            self._clients.look()
            if sampled and now >= looked:
                looked = now + EVERY
                self._sample(program.pid, now)
            time.sleep(0.02)

    def _sample(self, root: int, now: float) -> None:
        named = [("root", root)]
        named += [(f"agent {process.pid}", process.pid) for process in agents_of(root)]
        named += [(f"rank {process.pid}", process.pid) for process in ranks_of(root)]
        for name, pid in named:
            if (use := use_of(pid)) is not None:
                self._series[name, "memory"].add(now, use.memory)
                self._series[name, "descriptors"].add(now, use.descriptors)
                self._series[name, "chunks"].add(now, use.chunks)
                self._series[name, "threads"].add(now, use.threads)
        self._series["program", "segments"].add(now, segments_of(root))
        self._series["program", "files"].add(now, files_below(self._runtime))

    def _end(self, program: subprocess.Popen[bytes], output: Path) -> None:
        if program.poll() is None:
            # The kernel gives a signal that follows SIGCONT at once to another thread; a main thread that waits for a
            # lock does not learn of it then.
            holds_within(GONE, lambda: kernel_state(program.pid) == "S")
            how = self._dice.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            self._chaos.counts[f"root: {how.name}"] += 1
            os.kill(program.pid, how)
            try:
                program.wait(30)
            except subprocess.TimeoutExpired:
                stacks = _stacks_of(program.pid, output)
                self.findings.append(f"the root has not ended 30 s after {how.name}; its threads are at:\n{stacks}")
                program.kill()
                program.wait()
        else:
            text = output.read_text(errors="replace")[-3000:]
            self.findings.append(f"the program has ended by itself, with {program.returncode}; it printed:\n{text}")
        self._clients.end()
        if not holds_within(GONE, lambda: not _running()):
            self.findings.append(f"{GONE:.0f} s after the end of the root run: {_running()}")

    def _take(self, report: Path) -> None:
        try:
            told: dict[str, Any] = json.loads(report.read_text())
        except FileNotFoundError:
            return  # it was ended before it had anything to tell
        self._ended.update(told["ended"])
        self._meshes += told["meshes"]
        self.findings.extend(told["findings"])

    def _nothing_left(self) -> None:
        """The next program removes what is left of those that were killed, and takes its own along."""
        script = "from meshrt import proc_mesh\nproc_mesh(n=1).initialized.get()"
        done = subprocess.run([sys.executable, "-c", script], env=self._env, timeout=60, check=False)
        left = sorted(os.listdir(self._runtime)) if self._runtime.exists() else []
        if done.returncode or left:
            self.findings.append(f"a last program has ended with {done.returncode}, and has left {left}")

    def table(self) -> str:
        """Return what a person reads: calls, faults, slopes, findings."""
        rows = []
        for kind in ("root", "agent", "rank"):
            for what in ("memory", "descriptors", "chunks", "threads"):
                rows += self._row(kind, what)
        for what in ("segments", "files"):
            rows += self._row("program", what)
        counts = [
            *(("calls", how, count) for how, count in sorted(self._ended.items())),
            ("meshes", "made", self._meshes),
            *(("faults", what, count) for what, count in sorted(self._chaos.counts.items())),
            *(("clients", how, count) for how, count in sorted(self._clients.ended.items())),
        ]
        heads = ("process", "value", "series", "first", "last", "slope per min", "score", "grows")
        return "\n".join(
            [
                f"seed {self._options.seed}, {self._options.seconds:.0f} s",
                tabulate(counts, ("of", "what", "count")),
                "",
                tabulate(rows, heads, floatfmt=".2f") if rows else "(too short for slopes)",
                "",
                *(f"FOUND: {finding}" for finding in self.findings),
                f"{len(self.findings)} found",
            ]
        )

    def _row(self, kind: str, what: str) -> list[tuple[object, ...]]:
        """The series of one kind of process that has grown most; what grows is a finding."""
        trends = [
            trend
            for (name, value), series in self._series.items()
            if value == what and name.split()[0] == kind and (trend := series.trend()) is not None
        ]
        if not trends:
            if self._measured >= LONG_ENOUGH:
                self.findings.append(f"{what} of {kind} was not measured: none was there for long enough")
            return []
        unit = 1 << 20 if what in ("memory", "segments") else 1
        worst = max(trends, key=lambda trend: trend.last - trend.first)
        grown = [trend for trend in trends if trend.grows(TOLERANCE[what])]
        if grown:
            self.findings.append(f"{what} of {kind} grows: {[(round(t.first), round(t.last)) for t in grown]}")
        label = f"{what}, MiB" if unit > 1 else what
        values = (worst.first / unit, worst.last / unit, worst.slope * 60 / unit, worst.score)
        return [(kind, label, len(trends), *values, "yes" if grown else "no")]


def _stacks_of(root: int, output: Path) -> str:
    """Have the program print where its threads are; returns that."""
    before = output.stat().st_size
    os.kill(root, signal.SIGQUIT)
    holds_within(5.0, lambda: b"Current thread" in output.read_bytes()[before:])
    return output.read_bytes()[before:].decode(errors="replace")


def _running() -> list[int]:
    """Processes of the soak's programs that run; its own commands have ended."""
    return [pid for pid in marked_processes() if kernel_state(pid) not in ("", "Z", "X")]
