"""The agent of a host that Ray has placed: its actor, the agent itself, and what that writes."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from typing import IO

from meshrt.engine.elsewhere import Elsewhere
from meshrt.engine.ray_cluster import Group
from meshrt.errors import SpawnError
from meshrt.host.osutil import RUN_VARIABLE
from meshrt.mesh.engine import Program
from meshrt.transport.link import Link

__all__ = ["RayAgent"]

#: Seconds for the end of an agent that has not joined.
_END = 5.0
#: Seconds for which an agent is waited for, before the others are looked at.
_LOOK = 0.05


class RayAgent(Elsewhere):
    """The agent of one host. Any thread.

    Args:
        group, index: The bundle that it runs on.
        program: Which it is to join.
        runtime_env: As of `RayEngine`.

    Attributes:
        place: Sorts the agents of an engine.
        host: Its name; "" until it has started.
    """

    def __init__(self, group: Group, index: int, program: Program, runtime_env: Mapping[str, object] | None) -> None:
        self.group = group
        self.place = (group.number, index)
        self.host = ""
        self.mark = program.new_mark()
        #: What Ray says of its end.
        self._said = ""
        self.link: Link
        self._program = program
        self._invitation = program.invite()
        self.machine = self._invitation.machine
        self._actor = group.start(index, runtime_env)
        self._starting = self._actor.call("start", self._invitation.text(), {RUN_VARIABLE: self.mark})
        self._status: int | None = None
        self._killed = False
        self._ended = threading.Event()
        self._joined = False
        reader, self._writer = os.pipe()
        self.stderr: IO[bytes] | None = os.fdopen(reader, "rb")
        threading.Thread(target=self._follow, name="meshrt-ray", daemon=True).start()

    @property
    def name(self) -> str:
        """The name of its host; before it has started, that of the node as Ray has it."""
        return self.host or self.group.node_of(self.place[1])

    def has_started(self) -> bool:
        """Whether it has started. Raises SpawnError: it cannot be."""
        if not self.host:
            try:
                host, problem = self._starting.get(_LOOK)
            except TimeoutError:
                return False
            except ChildProcessError as error:
                raise SpawnError(f"the agent of host {self.name} cannot be started by Ray: {error}") from None
            if problem:
                raise SpawnError(f"the agent of host {host} cannot be started: {problem}")
            self.host = host
        return True

    def has_joined(self) -> bool:
        """Whether it has joined the program. Raises SpawnError: it has ended."""
        if not self._joined:
            link = self._invitation.accept(_LOOK)
            if link is None:
                if self._ended.is_set():
                    raise SpawnError(f"the agent of host {self.host} has ended before it joined{self._last_words()}")
                return False
            self.link, self._joined = link, True
        return True

    def kill(self) -> None:
        """End Ray's worker: the agent ends with it, and its ranks."""
        self._killed = True
        self._actor.kill()

    def said_of_end(self) -> str:
        """Return what Ray says of its end."""
        return self._said

    def wait(self, timeout: float) -> bool:
        """Wait for its end, and until it has left nothing in Ray."""
        return self._ended.wait(timeout)

    def undo(self) -> None:
        """End one that is not to join."""
        self._invitation.withdraw()
        self.kill()
        self.wait(_END)
        if self.stderr is not None:
            self.stderr.close()

    def _follow(self) -> None:
        """Pass on what it writes; at its end, leave nothing in Ray."""
        try:
            self._starting.get()
            while isinstance(said := self._actor.call("read").get(), bytes):
                with contextlib.suppress(OSError):  # it is not read any more
                    os.write(self._writer, said)
            self._status = said if isinstance(said, int) else None
        except ChildProcessError as error:
            if not self._killed:
                self._said = f"Ray says: {error}"
                if self.host:  # if it has not started, that is the error of the mesh
                    self._program.announce(f"host {self.host}: {self._said}")
        finally:
            os.close(self._writer)
            self._actor.kill()
            self.group.release(self.place[1])
            self._ended.set()

    def _last_words(self) -> str:
        said = self.stderr.read().decode(errors="replace").strip() if self.stderr is not None else ""
        how = f", with exit status {self._status}" if self._status is not None else ""
        return how + (f": {said or self._said}" if said or self._said else "")
