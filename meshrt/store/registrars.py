"""The connections of a process to the stores of its program: one for each host agent, made when it is first needed.

There is no lock: an entry is added or removed in one step, and each `Registrar` has a lock of its own. Finalizers come
here, so nothing here may wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from meshrt.errors import ReferenceLost
from meshrt.store.machine import machine_of
from meshrt.store.registrar import Registrar
from meshrt.transport.threads import on_event_loop
from meshrt.wire.handshake import Identity

__all__ = ["Registrars"]

#: Seconds that the first host agent may take to start, for what is written right behind `proc_mesh`.
_START = 30.0
#: ... for the end of a rank after that of its agent.
_OWN_END = 1.0
_AT_ONCE = 0.001


class Registrars:
    """Any thread.

    Args:
        directory: The runtime directory of the program.
        secret: Processes prove it to each other.
        home: ``home(seconds)`` returns the pid of the host agent whose store registers what this process writes; 0 if
            there is none within so many seconds. With seconds, one is started where all agents are elsewhere.
        host_of: Returns the host of an agent; "" if that is not known here.
        watch: Called when a registrar has messages to send or to read: `tend` is to be called soon.
    """

    def __init__(
        self,
        directory: str,
        secret: bytes,
        home: Callable[[float], int],
        host_of: Callable[[int], str],
        watch: Callable[[], None],
    ) -> None:
        self.home = home
        self._host_of = host_of
        self._directory = directory
        self._secret = secret
        self._watch = watch
        self._by_agent: dict[int, Registrar] = {}
        #: Of a rank, the host agent.
        self._parent = os.getppid()
        self.closed = False

    def __iter__(self) -> Iterator[Registrar]:
        return iter(tuple(self._by_agent.values()))

    def identity(self) -> Identity:
        """Return the identity of this process for others; with machine 0 if that is not known yet."""
        home = self.home(0.0)
        return Identity(machine_of(home), home, os.getpid())

    def wait_for_home(self) -> None:
        """Have a host agent on this machine, and wait until it serves; on an event loop nothing waits."""
        self.home(_AT_ONCE if on_event_loop() else _START)

    def wait_for_own_end(self) -> None:
        """Wait, in a rank whose host agent has ended: the kernel ends the rank a moment after it has closed the store.

        An answer that tells of the store would hide that the host was lost.
        """
        home = self.home(0.0)
        if home == self._parent and home in self._by_agent and self._by_agent[home].lost:
            time.sleep(_OWN_END)

    def of(self, agent_pid: int) -> Registrar:
        """Return the connection to the store of an agent. Raises ReferenceLost."""
        if self.closed:
            raise ReferenceLost(
                "the program has ended, or this is a forked child of it, which cannot use shared memory"
            )
        if not agent_pid:
            raise ReferenceLost("no host agent runs: make a mesh with proc_mesh() first")
        return self._of(agent_pid)

    def _of(self, agent_pid: int) -> Registrar:
        found = self._by_agent.get(agent_pid)
        if found is None:
            found = Registrar(self._directory, self._secret, agent_pid, machine_of(agent_pid), self._host_of)
        return self._by_agent.setdefault(agent_pid, found)

    def let_go(self, agent_pid: int, segment: int) -> None:
        """This process holds a segment once less. A finalizer may call it."""
        if self.closed:
            return
        registrar = self._of(agent_pid)  # there may be none yet: what came was dropped unread
        registrar.let_go(segment)
        if registrar.has_work:
            self._watch()

    def forget(self, registrar: Registrar) -> None:
        """Its agent has ended."""
        self._by_agent.pop(registrar.agent_pid, None)

    def tend(self) -> bool:
        """Send and read messages without waiting. Returns whether there may be more soon."""
        for registrar in self:
            registrar.tend()
        return any(registrar.has_work for registrar in self)

    def close(self) -> None:
        """The end of this process's part in the program."""
        self.closed = True
        for registrar in self:
            registrar.close()
