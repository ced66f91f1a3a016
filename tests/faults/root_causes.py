"""Programs in which one rank fails, and others because it did: is the right one named?

``python -m tests.faults.root_causes [--runs N] [--seed S]`` runs them and prints the counts. Every run is made from its
own seed: who fails and how, who follows after how long and how, and whose wall clock is wrong. With ``AGENTS`` in the
environment (`tests.cluster.conftest`) the ranks are on two machines.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import meshrt
from meshrt import Actor, ActorMesh, CommandEngine, ProcMesh, current_rank, endpoint, proc_mesh
from meshrt.failure.causes import judge
from meshrt.failure.files import files_of, read
from meshrt.mesh.program import start_root

__all__ = ["Outcome", "Scenario", "run"]

RANKS = 4
CAUSES = ("raise", "raise from", "slow clean-up", "exit", "kill", "segv", "thread", "sys.exit")
VICTIMS = ("eof", "chained", "own words", "exit", "abort", "call", "waits")
#: Victims of which nothing speaks for it that they are some.
_MUTE = ("own words", "exit", "abort")
LONG = 30.0
#: Of two machines: their names, and what the commands of their agents begin with.
_AGENTS: dict[str, list[str]] = json.loads(os.environ.get("AGENTS", "{}"))


@dataclass(frozen=True)
class Scenario:
    """One program."""

    seed: int
    cause: int
    how: str
    #: By rank: how it fails, and so many seconds after it has seen the cause's end.
    victims: dict[int, tuple[str, float]]
    #: Seconds by which the wall clock of a rank is wrong.
    clocks: dict[int, float]

    @classmethod
    def make(cls, seed: int) -> Scenario:
        draw = random.Random(seed)
        cause = draw.randrange(RANKS)
        delays = (0.0, 0.0, draw.uniform(0, 0.005), draw.uniform(0, 0.05), draw.uniform(0, 0.5))
        victims = {rank: (draw.choice(VICTIMS), draw.choice(delays)) for rank in range(RANKS) if rank != cause}
        clocks = {rank: draw.choice((0.0, 0.0, 3600.0, -3600.0)) for rank in range(RANKS)}
        return cls(seed, cause, draw.choice(CAUSES), victims, clocks)

    @property
    def silent(self) -> bool:
        """Whether a victim may fail before anything that is known of the cause has happened."""
        return any(how in _MUTE for how, _ in self.victims.values())

    def __str__(self) -> str:
        victims = ", ".join(f"{rank} {how} +{delay * 1e3:.1f} ms" for rank, (how, delay) in self.victims.items())
        return f"seed {self.seed}: rank {self.cause} {self.how}; {victims}"


class Peer(Actor):
    """Every rank holds a connection to the one that will fail."""

    def __init__(self, folder: str, scenario: Scenario) -> None:
        self.scenario = scenario
        self.path = f"{folder}/s"
        self.rank = current_rank().rank
        self.connections: list[socket.socket] = []
        ahead, now = scenario.clocks[self.rank], time.time_ns
        time.time_ns = lambda: now() + int(ahead * 1e9)

    @endpoint
    def listen(self) -> Any:
        """The one that will fail returns its address."""
        if self.rank != self.scenario.cause:
            return None
        if _AGENTS:
            self.listener = socket.create_server((socket.gethostbyname(socket.gethostname()), 0))
        else:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(self.path)
            self.listener.listen()
        return self.listener.getsockname()

    @endpoint
    def connect(self, address: Any) -> None:
        if self.rank == self.scenario.cause:
            self.connections = [self.listener.accept()[0] for _ in self.scenario.victims]
        else:
            self.connections = [socket.socket(socket.AF_INET if _AGENTS else socket.AF_UNIX)]
            self.connections[0].connect(address)

    @endpoint
    def work(self, peers: Any) -> None:
        if self.rank == self.scenario.cause:
            self.fail()
            return
        how, delay = self.scenario.victims[self.rank]
        received = self.connections[0].recv(1)
        if how == "waits":
            time.sleep(600)
        time.sleep(delay)
        self.follow(how, received, peers)

    def let_go(self) -> None:
        for connection in self.connections:
            connection.close()

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.let_go()

    def fail(self) -> None:
        how = self.scenario.how
        if how == "slow clean-up":
            try:
                raise ValueError("bad batch")
            finally:
                self.let_go()
                time.sleep(random.Random(self.scenario.seed).uniform(0, 0.3))
        if how == "raise from":
            with self.holding():
                try:
                    raise KeyError("labels")
                except KeyError as error:
                    raise ValueError("bad batch") from error
        if how == "thread":
            thread = threading.Thread(target=self.in_thread)
            thread.start()
            thread.join()
            os._exit(1)
        if how == "exit":
            os._exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "segv":
            ctypes.string_at(0)
        if how == "sys.exit":
            with self.holding():
                sys.exit("no configuration")
        with self.holding():
            raise ValueError("bad batch")

    def in_thread(self) -> None:
        raise ValueError("bad batch in a thread")

    def follow(self, how: str, received: bytes, peers: Any) -> None:
        if how == "chained":
            try:
                raise ConnectionResetError("peer is gone")
            except ConnectionResetError as error:
                raise RuntimeError("all_reduce failed") from error
        if how == "own words":
            raise RuntimeError("all_reduce failed")
        if how == "exit":
            os._exit(1)
        if how == "abort":
            os.abort()
        if how == "call":
            one(peers, self.scenario.cause).listen.call_one().get(0.5)
        raise EOFError(f"received {received!r}")


def make_mesh() -> ProcMesh:
    """Make the mesh: on this machine, or on two others."""
    if not _AGENTS:
        return proc_mesh(n=RANKS)
    engine = CommandEngine(tuple(_AGENTS), tuple(map(tuple, _AGENTS.values())))
    return proc_mesh(hosts=2, n=RANKS // 2, engine=engine)


def one(peers: ActorMesh[Peer], rank: int) -> ActorMesh[Peer]:
    """Return one rank."""
    return peers.slice(hosts=rank // 2, n=rank % 2) if _AGENTS else peers.slice(n=rank)


@dataclass(frozen=True)
class Outcome:
    """What the program's own report says.

    Attributes:
        verdict: ``"right"``, ``"ambiguous"`` (with the cause among the candidates) or ``"wrong"``.
    """

    scenario: Scenario
    verdict: str
    report: str


def run(scenario: Scenario) -> Outcome:
    """Run the program in this process, and look at the file that it leaves."""
    folder = tempfile.mkdtemp(prefix="c-")
    mesh = make_mesh()
    directory = Path(start_root().run.run_directory)
    peers = mesh.spawn("peer", Peer, folder, scenario)
    (address,) = filter(None, peers.listen.call().get(LONG).values())
    peers.connect.call(address).get(LONG)
    try:
        with mesh:
            # Every rank is waited for by itself, as by a program that goes on as long as it can.
            calls = [one(peers, rank).work.call_one(peers) for rank in range(RANKS)]
            waits = {rank for rank, (how, _) in scenario.victims.items() if how == "waits"}
            errors = [call.exception(LONG) for rank, call in enumerate(calls) if rank not in waits]
            raise next(error for error in errors if error is not None)
    except meshrt.MeshError:
        pass
    meshrt.shutdown_context()
    incident = read(files_of(directory)[-1])
    verdict = judge(incident.records)
    roots = {root.rank for root in verdict.roots} | {about.rank for about in verdict.unknown}
    if scenario.cause not in roots:
        word = "wrong"
    else:
        word = "ambiguous" if verdict.ambiguous else "right" if roots == {scenario.cause} else "wrong"
    from meshrt.failure.report import render

    return Outcome(scenario, word, render(incident, verdict))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.root_causes", description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the others follow")
    parser.add_argument("--verbose", action="store_true", help="print the report of every run that is not right")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    silent = 0
    for seed in range(given.seed, given.seed + given.runs):
        outcome = run(Scenario.make(seed))
        counts[outcome.verdict] += 1
        silent += outcome.verdict == "ambiguous" and outcome.scenario.silent
        if outcome.verdict != "right":
            print(f"{outcome.verdict:9} {outcome.scenario}", flush=True)
            if given.verbose:
                print(outcome.report, flush=True)
    print(
        f"{given.runs} runs, seeds {given.seed}-{given.seed + given.runs - 1}: {counts['right']} right, "
        f"{counts['ambiguous']} ambiguous ({silent} with a victim that leaves no evidence), {counts['wrong']} wrong"
    )
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
