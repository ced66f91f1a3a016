"""Faults at random times: each kind is a Poisson process of its own, all drawn from one seed."""

from __future__ import annotations

import collections
import heapq
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.soak.samples import agents_of, killable, ranks_of

__all__ = ["Chaos", "Clients"]

#: Seconds that a debugger client or a command of the shell may take. The ranks that it asks may be stopped meanwhile.
CLIENT = 60.0
#: Exit codes that the commands document.
_DOCUMENTED = (0, 1, 2, 3)

_COMMANDS = (
    ("debug", "-c", "where"),
    ("debug", "-c", "status", "-c", "list"),
    ("debug", "-c", "p worker self.last"),
    ("debug", "-c", "interrupt worker ranks(3)", "-c", "cast worker ranks(3) w", "-c", "continue"),
    ("debug", "-c", "break worker.made", "-c", "breaks", "-c", "clear", "-c", "continue"),
    ("ps", "--json"),
    ("logs", "-n", "3"),
    ("memory", "--vars"),
    ("top", "--once", "--json"),
    ("timeline", "--seconds", "1", os.devnull),
)


class Clients:
    """Commands of the shell and of the debugger that look into the program, some of them killed while they do.

    Args:
        folder: For what they print.
        env: Their environment.
        find: Told of what must not happen.
    """

    def __init__(self, folder: Path, env: dict[str, str], find: Callable[[str], None]) -> None:
        self._folder = folder
        self._env = env
        self._find = find
        self._running: dict[subprocess.Popen[bytes], tuple[str, Path, float]] = {}
        self._number = 0
        self.ended: collections.Counter[str] = collections.Counter()

    def start(self, pid: int, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
        """Start a command on the program ``pid``."""
        self._number += 1
        output = self._folder / f"client.{self._number}"
        name, *rest = words
        named = ["--pid", str(pid)] if name == "debug" else [str(pid)]
        arguments = [sys.executable, "-m", "meshrt", name, *rest, *named]
        with open(output, "wb") as file:
            client = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=self._env, start_new_session=True
            )
        self._running[client] = (" ".join(words), output, time.monotonic() + CLIENT)
        return client

    def start_any(self, pid: int, dice: random.Random) -> subprocess.Popen[bytes]:
        """Start one of the commands that there are."""
        return self.start(pid, dice.choice(_COMMANDS))

    def look(self) -> None:
        """Take in those that have ended, and end those that take too long."""
        for client, (words, output, deadline) in list(self._running.items()):
            if client.poll() is not None:
                self._ended(client, words, output)
            elif time.monotonic() > deadline:
                self._find(f"`{words}` has not ended after {CLIENT:.0f} s; it printed:\n{_tail(output)}")
                self._forget(client)

    def _ended(self, client: subprocess.Popen[bytes], words: str, output: Path) -> None:
        code = client.returncode
        self.ended["killed" if code == -signal.SIGKILL else f"exit code {code}"] += 1
        text = _tail(output)
        if code != -signal.SIGKILL and (code not in _DOCUMENTED or re.search("^Traceback", text, re.MULTILINE)):
            self._find(f"`{words}` has ended with {code}; it printed:\n{text}")
        self._forget(client)

    def _forget(self, client: subprocess.Popen[bytes]) -> None:
        _, output, _ = self._running.pop(client)
        client.kill()
        client.wait()
        output.unlink(missing_ok=True)

    def end(self) -> None:
        """Wait for all that still run."""
        while self._running:
            self.look()
            time.sleep(0.05)


class Chaos:
    """Kills, stops, continues and fills at random, on the clock of `look`. One thread.

    Args:
        seed: Of all that is drawn.
        clients: Start what looks into the program.
        disk: A file system of its own that may be filled, where the program keeps its logs; None if there is none.
        busier: All rates are multiplied by it.
    """

    def __init__(self, seed: int, clients: Clients, disk: Path | None, busier: float = 1.0) -> None:
        self._dice = random.Random(seed)
        self._clients = clients
        self._disk = disk
        self.counts: collections.Counter[str] = collections.Counter()
        #: Mean seconds between two of a kind.
        self._kinds: dict[Callable[[int], str], float] = {
            self._kill_rank: 6.0,
            self._stop_rank: 5.0,
            self._kill_agent: 60.0,
            self._stop_agent: 20.0,
            self._stop_root: 25.0,
            self._client: 3.0,
            self._kill_client: 8.0,
        }
        if disk is not None:
            self._kinds[self._fill_disk] = 40.0
        self._kinds = {kind: mean / busier for kind, mean in self._kinds.items()}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._next = {kind: time.monotonic() + self._dice.expovariate(1 / mean) for kind, mean in self._kinds.items()}

    def look(self, root: int) -> None:
        """Do what is due by now to the program ``root``."""
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2]()
        for kind, mean in self._kinds.items():
            if self._next[kind] <= now:
                self._next[kind] = now + self._dice.expovariate(1 / mean)
                try:
                    what = kind(root)
                except (psutil.NoSuchProcess, ProcessLookupError):
                    continue  # it has ended between the look and the act
                if what:
                    self.counts[what] += 1

    def calm(self) -> None:
        """Undo all that is to be undone: nothing stays stopped, no disk full."""
        while self._due:
            heapq.heappop(self._due)[2]()

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._order, act))

    def _stop(self, process: psutil.Process) -> None:
        process.suspend()

        def resume() -> None:
            try:
                process.resume()
            except psutil.NoSuchProcess:
                pass  # killed while it was stopped

        self._later(self._dice.uniform(0.1, 4.0), resume)

    def _any(self, processes: list[psutil.Process]) -> psutil.Process | None:
        return self._dice.choice(processes) if processes else None

    def _kill_rank(self, root: int) -> str:
        if (rank := self._any(killable(ranks_of(root)))) is None:
            return ""
        number = self._dice.choice((signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM))
        rank.send_signal(number)
        return f"rank: {number.name}"

    def _stop_rank(self, root: int) -> str:
        if (rank := self._any(ranks_of(root))) is None:
            return ""
        self._stop(rank)
        return "rank: stopped, continued"

    def _kill_agent(self, root: int) -> str:
        if (agent := self._any(killable(agents_of(root)))) is None:
            return ""
        agent.kill()
        return "agent: SIGKILL"

    def _stop_agent(self, root: int) -> str:
        if (agent := self._any(agents_of(root))) is None:
            return ""
        self._stop(agent)
        return "agent: stopped, continued"

    def _stop_root(self, root: int) -> str:
        self._stop(psutil.Process(root))
        return "root: stopped, continued"

    def _client(self, root: int) -> str:
        self._clients.start_any(root, self._dice)
        return "client"

    def _kill_client(self, root: int) -> str:
        self._later(self._dice.uniform(0.0, 1.5), self._clients.start_any(root, self._dice).kill)
        return "client: SIGKILL"

    def _fill_disk(self, root: int) -> str:
        assert self._disk is not None
        filler = self._disk / "filler"
        if filler.exists():
            return ""  # it is full already
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
            except OSError:
                pass  # ENOSPC: full, as it was to be
        self._later(self._dice.uniform(0.5, 4.0), filler.unlink)
        return "disk: full, free"


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:]
