"""Another program, for the handles of its actors that this process has: it connects there, and calls the ranks itself.

A connection: ``open -> ended``, when the program ends or `close` is called. A process may have several, beside a
program of its own; the handles know theirs. Each has its own links and a thread, and none touches the program's ends:
the other program sees a caller.

A handle that has come as a pickle connects when it is first used. These connections are shared, one for each program,
and last until either process ends.
"""

from __future__ import annotations

import functools
import os
import threading
from pathlib import Path

from meshrt.errors import Disconnected, MeshError, UsageError
from meshrt.mesh.clienttree import ClientTree
from meshrt.transport.background import BackgroundThread
from meshrt.transport.directories import ended_run
from meshrt.transport.process import ProcessRuntime, connected_to
from meshrt.transport.tools import Program, ToolConnection, connect, program_at
from meshrt.wire.clients import Enter
from meshrt.wire.versions import own_versions

__all__ = ["Connection", "ForeignProgram", "foreign_program"]

#: Characters of the command line of a program.
_COMMAND = 60
#: Seconds between two attempts to wake a thread that waits for a call which has failed.
_WAKE_AGAIN = 0.1


class Connection:
    """A connection to a running program.

    Args:
        program: Which one.
        is_shared: It is for all handles that have come as pickles.
    Raises:
        ConnectionError: It has ended, or does not answer.
        UsageError: It refuses: it has another version of meshrt, or lets no other process call its actors.
    """

    def __init__(self, program: Program, *, is_shared: bool = False) -> None:
        self.program = program
        self.is_shared = is_shared
        self.pid: int = os.getpid()
        command = " ".join([os.path.basename(program.argv[0]), *program.argv[1:]]) if program.argv else "?"
        command = " ".join(command.split())
        #: ``"program 4711 (python train.py)"``
        self.name: str = (
            f"program {program.pid} ({command if len(command) <= _COMMAND else command[:_COMMAND] + '...'})"
        )
        self._why = ""
        self.tools: ToolConnection = connect(program, on_close=self._ended)
        background = self._background = BackgroundThread()
        try:
            entered = self.tools.ask(Enter(own_versions().text))
            tree = ClientTree(self.tools, background, self._ended)
            self.runtime: ProcessRuntime = ProcessRuntime(
                program.run_id,
                entered.address,
                entered.secret,
                tree,
                is_root=False,
                certificate=lambda: entered.certificate,
                machine=entered.address.machine,
            )
        except BaseException:
            self.tools.close()
            background.close()
            raise
        tree.driver = self.runtime.driver
        self.runtime.driver.shield.take_part()
        background.start(self.runtime.driver)
        _open.append(self)
        connected_to.append(self.name)

    @property
    def why_ended(self) -> str:
        """What has become of it; "": it is open."""
        return self._why

    def _ended(self) -> str:
        """The connection has ended: the first that is told of it, a link by its watch, says so to all. Returns why."""
        self._why = self._why or f"{self.name} has ended"
        return self._why

    def close(self) -> None:
        """End it: calls that are under way fail. The program continues. A no-op the second time."""
        if self not in _open:
            return
        _open.remove(self)
        connected_to.remove(self.name)
        self._why = self._why or f"the connection to {self.name} was closed"
        self.tools.close()
        self._background.close()
        driver = self.runtime.driver
        driver.shield.leave()
        # Their calls have failed by now, but they may not have noticed that yet.
        left = threading.Event()
        driver.wait_ended = left.set
        while self._has_waiting_threads():
            driver.wake()
            left.wait(_WAKE_AGAIN)
            left.clear()
        if not driver.waits.entries:  # or else an event loop still has its descriptors
            driver.close()

    def _has_waiting_threads(self) -> bool:
        here = threading.get_ident()  # in a callback of a wait
        return any(isinstance(waiter, int) and waiter != here for waiter in tuple(self.runtime.driver.waits.entries))

    def abandon(self) -> None:
        """Close the descriptors in a forked child."""
        self._why = f"the connection to {self.name} belongs to process {self.pid}, of which this one is a fork"
        self.tools.abandon()
        self._background.abandon()
        self.runtime.driver.abandon()


class ForeignProgram:
    """The program of a handle. Any thread.

    Args:
        run_id: Its id.
        directory: Its runtime directory, as its own machine names it.
        connection: The connection for the handle; None: it is made on first use, for all such handles.
    """

    __slots__ = ("_connection", "directory", "run_id")

    def __init__(self, run_id: str, directory: str, connection: Connection | None = None) -> None:
        self.run_id: str = run_id
        self.directory: str = directory
        self._connection = connection

    def runtime(self, actor: str) -> ProcessRuntime:
        """Return the program as this process sees it.

        Raises:
            Disconnected: The program has ended, or the connection was closed.
            UsageError: It runs somewhere else, or refuses the connection.
        """
        connection = self._connection
        if connection is None:
            connection = self._connection = _shared(self, actor)
        if connection.why_ended:
            if connection.pid != os.getpid():
                self._connection = None  # a fork makes its own
                return self.runtime(actor)
            raise Disconnected(connection.why_ended, actor)
        return connection.runtime

    def __str__(self) -> str:
        return self._connection.name if self._connection is not None else f"program {self.run_id}"


@functools.cache
def foreign_program(run_id: str, directory: str) -> ForeignProgram:
    """Return the program of handles that have come as pickles."""
    return ForeignProgram(run_id, directory)


_open: list[Connection] = []
_making = threading.Lock()


def _shared(foreign: ForeignProgram, actor: str) -> Connection:
    with _making:
        if foreign._connection is not None:
            return foreign._connection
        for old in tuple(_open):
            if old.is_shared and old.why_ended and not old.runtime.driver.waits.entries:
                old.close()
        program = program_at(Path(foreign.directory), foreign.run_id)
        if program is None:
            raise _not_here(foreign.run_id, actor)
        try:
            return Connection(program, is_shared=True)
        except ConnectionError as error:
            raise Disconnected(f"it belongs to program {program.pid}: {error}", actor) from error


def _not_here(run_id: str, actor: str) -> MeshError:
    if ended_run(run_id) is not None:
        return Disconnected(f"it belongs to program {run_id}, which has ended", actor)
    return UsageError(
        f"{actor} belongs to program {run_id}, which is not a running program of this user on this machine: it has "
        "ended, or runs elsewhere; only processes of its own machine and user can call it"
    )


def _in_forked_child() -> None:
    global _making
    _making = threading.Lock()
    for connection in _open:
        connection.abandon()
    _open.clear()
    connected_to.clear()


os.register_at_fork(after_in_child=_in_forked_child)
