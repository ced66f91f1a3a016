"""The hosts of a launcher, as the script uses them: which have joined, and which of them a mesh gets.

::

    opened: every process of the launcher joins by one invitation; the agent of host 0 is a child of the script
        place: waits until enough have joined, and returns those for the mesh, in the order of the launcher
        a host that joins later is there for the next mesh
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from meshrt.engine.elsewhere import Elsewhere
from meshrt.engine.launch.launchers import Launched
from meshrt.engine.local import LocalEngine
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Arrival, OpenInvitation, OpenProgram, Placed, Program, Refusal, Request
from meshrt.mesh.spec import default_sizes
from meshrt.selection import fold_ranks

__all__ = ["LaunchEngine", "identity", "needed"]

#: Seconds for which the next agent is waited for at once: Ctrl-C ends the wait.
_LOOK = 0.2
#: Seconds after which it is said for the first time what is waited for; then after twice the time, again and again.
_SAY = 5.0
#: Names of hosts that a message has, at most.
_NAMES = 8
#: Seconds for which hosts that are still about to join are waited for when the script ends, to be told so.
_LINGER = 5.0


def identity(index: int) -> str:
    """Return what the agent of this host says of itself: index, GPUs, host name."""
    return f"{index}/{default_sizes().get('gpus', 0)}/{socket.gethostname()}"


def needed(ranks: int, hosts: int, gpus: int) -> int:
    """Return how many of ``hosts`` get ranks, evenly, where the mesh does not say; 0: it cannot be.

    With GPUs, as few hosts as have one for each rank; without, as many as possible.
    """
    if not gpus:
        return next((count for count in range(min(hosts, ranks), 0, -1) if not ranks % count), 0)
    return next((count for count in range(math.ceil(ranks / gpus), hosts + 1) if not ranks % count), 0)


class LaunchedAgent(Elsewhere):
    """An agent that the launcher has started.

    Attributes:
        index: Of its host.
        gpus: Of its host.
    """

    stderr = None

    def __init__(self, arrival: Arrival, mark: str) -> None:
        index, gpus, self.host = arrival.who.split("/", 2)
        self.index, self.gpus = int(index), int(gpus)
        self.mark = mark
        self.machine = arrival.machine
        self.link = arrival.link

    @property
    def gone(self) -> bool:
        """Whether it has ended, as far as its link tells."""
        return self.link.closed or self.link.hung_up()

    def kill(self) -> None:
        """End it, by the end of its link."""
        if not self.link.closed:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.link.fileno())) as sock:
                sock.shutdown(socket.SHUT_RDWR)

    def said_of_end(self) -> str:
        """See `Placed.said_of_end`: only its launcher knows."""
        return ""

    def wait(self, timeout: float) -> bool:
        """Its launcher waits for its end; here only the end of the link is known."""
        return self.gone


class LaunchEngine:
    """The hosts of one launcher, for one program. Threads of the script.

    Args:
        found: What the launcher says.
        fewest: How many hosts must have joined before the first mesh starts.
        seconds: How long that may take, and a host that a later mesh needs.
        say: Is given a line now and then.

    Attributes:
        on_complete: Called once all hosts have joined.
    """

    def __init__(self, found: Launched, fewest: int, seconds: float, say: Callable[[str], None]) -> None:
        self.on_complete: list[Callable[[], None]] = []
        self._found = found
        self._fewest = fewest
        self._seconds = seconds
        self._say = say
        self._lock = threading.RLock()
        self._program: Program | None = None
        #: None: the launcher has started this process alone.
        self._invitation: OpenInvitation | None = None
        #: The other hosts, by index.
        self._joined: dict[int, LaunchedAgent] = {}
        #: Why hosts cannot join, by index.
        self._refused: dict[int, str] = {}

    def open(self, program: OpenProgram, secret: bytes, port: int) -> bytes:
        """Let hosts join; returns what they join with. Raises OSError, UsageError: no port can be opened."""
        self._program = program
        if self._found.hosts == 1:
            return b""
        self._invitation = program.invite_all(secret, port)
        return self._invitation.text()

    # -- what meshes ask for

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the dimensions of a mesh.

        Unless it has others: ``hosts`` is all that have joined, and ``gpus`` those of each, where it does not say so,
        and where there are GPUs.
        """
        if (
            len(given) == 2
            or not given.keys() <= {"hosts", "gpus"}
            or not all(type(each) is int for each in given.values())
        ):
            return dict(given)  # what is wrong with it is told where all meshes are checked
        others = self._wait(given.get("hosts", 1))
        hosts = given.get("hosts", 1 + len(others))
        gpus = given.get("gpus") or _gpus(others[: hosts - 1])
        return {"hosts": hosts, "gpus": gpus} if gpus else {"hosts": hosts}

    def place(self, program: Program, request: Request, living: Sequence[Placed]) -> Sequence[Placed]:
        """Return hosts in the order of the launcher: as many as the mesh says, or as its ranks need."""
        if program is not self._program:
            raise SpawnError(
                "the hosts of the launcher have ended with the first shutdown_context(): a script that is launched has "
                "one program"
            )
        others = self._wait(request.hosts or 1)
        count = request.hosts or needed(request.ranks, 1 + len(others), _gpus(others))
        if not count:
            raise UsageError(
                f"{request.ranks} ranks cannot be divided among {1 + len(others)} hosts with {_gpus(others)} GPUs "
                "each; expected hosts=, or other sizes"
            )
        own = LocalEngine().place(program, request, [each for each in living if not each.machine])
        return [*own, *others[: count - 1]]

    def linger(self) -> None:
        """The script ends: wait a moment for hosts that are about to join, so that they end, too."""
        deadline = time.monotonic() + _LINGER
        while 1 + len(self._joined) + len(self._refused) < self._found.hosts and time.monotonic() < deadline:
            self._accept(_LOOK)

    # -- who has joined

    def _wait(self, count: int) -> list[LaunchedAgent]:
        """Wait until so many hosts, and the fewest, have joined and live; returns all that have, in order, but host 0.

        Raises:
            UsageError: The launcher has started fewer.
            SpawnError: They have not joined in time, or cannot: they have another version.
        """
        if count > self._found.hosts:
            raise UsageError(f"hosts={count}, but the number of hosts is {self._found.hosts} ({self._found.launcher})")
        begun = time.monotonic()
        said = _SAY
        with self._lock:
            wanted = max(count, self._fewest)
            while True:
                while self._accept(0.0):
                    pass
                here = [agent for _, agent in sorted(self._joined.items()) if not agent.gone]
                if 1 + len(here) >= wanted:
                    self._fewest = 1  # a host that is lost later is not waited for, unless a mesh asks for as many
                    return here
                if self._found.hosts - len(self._refused) < wanted:
                    raise SpawnError("; ".join(self._refused.values()))
                waited = time.monotonic() - begun
                state = f"{1 + len(here)} of {wanted} hosts have joined after {waited:.0f} s; {self._missing(here)}"
                if waited >= self._seconds:
                    raise SpawnError(f"{state}; see the output of these processes, --min-hosts and --timeout")
                if waited >= said:
                    self._say(f"{state}; the time limit is in {self._seconds - waited:.0f} s")
                    said = waited * 2
                self._accept(_LOOK)

    def _accept(self, seconds: float) -> bool:
        """Take the next agent that has joined; returns whether there was one."""
        arrival = self._invitation.accept(seconds) if self._invitation is not None else None
        if arrival is None or self._program is None:
            return False
        if isinstance(arrival, Refusal):
            self._refused[int(arrival.who.partition("/")[0])] = arrival.why
            if self._found.hosts - len(self._refused) >= self._fewest:
                self._say(f"a host was rejected: {arrival.why}")
            return True
        agent = LaunchedAgent(arrival, self._program.new_mark())
        if not 0 < agent.index < self._found.hosts:  # of another job, with the same secret file
            self._say(f"host {agent.host} was rejected: it has index {agent.index} of {self._found.hosts} hosts")
            agent.link.close()
            return True
        self._refused.pop(agent.index, None)
        self._joined[agent.index] = agent  # a process that the launcher has started again takes the place of the first
        if 1 + len(self._joined) >= self._found.hosts:
            actions, self.on_complete[:] = [*self.on_complete], []
            for action in actions:
                action()
        return True

    def _missing(self, here: Sequence[LaunchedAgent]) -> str:
        present = {0, *(agent.index for agent in here)}
        missing = [index for index in range(self._found.hosts) if index not in present]
        names = [self._found.names[index] for index in missing] if self._found.names else []
        return f"missing: index {fold_ranks(missing)}" + (f" ({', '.join(names[:_NAMES])})" if names else "")


def _gpus(others: Sequence[LaunchedAgent]) -> int:
    """Return how many GPUs each host has. Raises UsageError: they have different numbers."""
    counts = {socket.gethostname(): default_sizes().get("gpus", 0), **{agent.host: agent.gpus for agent in others}}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{host}: {count}" for host, count in counts.items())
        raise UsageError(f"the hosts have different numbers of GPUs ({each}): set their number with hosts= and gpus=")
    return next(iter(counts.values()))
