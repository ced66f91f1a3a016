"""How terminals find the running programs of this user, and a terminal's end of the control socket: connect, ask.

Any thread may call `ToolConnection.ask`; events come on the connection's own reader thread.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from meshrt.errors import AuthenticationError, ProtocolError
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Data, Operation, body_of
from meshrt.transport import directories, dirlock, places
from meshrt.transport.link import same_user
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.transport.writing import write_atomic
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_TOOL, ClientHandshake, Secret
from meshrt.wire.peer import Answered, Requests
from meshrt.wire.tree import TO_TERMINAL, Event, Request, ToTerminal

__all__ = ["TOKEN", "Program", "ToolConnection", "connect", "own_program", "program_at", "programs", "publish"]

#: The file with the token that a terminal proves.
TOKEN = "tools.token"

#: Where a thousand processes want the machine at once, a program that is well answers late.
_CONNECT_SECONDS = 60.0

A = TypeVar("A", bound=Data)


class Program(msgspec.Struct, frozen=True):
    """A running program: its root process. Its runtime directory says so, or another machine does."""

    #: A part of names of files.
    run_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{1,32}\Z")]
    pid: int
    argv: list[str]
    cwd: str
    #: Seconds since the epoch, wall clock.
    started: float
    directory: Path
    run_directory: Path
    #: It is on another machine, reached by this command (``--via``); "": on this one.
    via: str = ""


def publish(directory: Path, token: bytes, facts: Mapping[str, object]) -> None:
    """Have terminals find this program, which listens already. Raises OSError.

    Args:
        directory: Its runtime directory.
        token: Terminals prove that they have it.
        facts: ``run_id``, ``cwd``, ``started`` and ``run_directory``, as in `Program`.
    """
    write_atomic(directory / TOKEN, token.hex())
    write_atomic(directory / dirlock.PROGRAM, json.dumps({**dirlock.identity(), "argv": sys.orig_argv, **facts}))


def _read(directory: Path) -> Program | None:
    facts = dirlock.facts_of(directory / dirlock.PROGRAM)
    try:
        if dirlock.is_elsewhere(facts) or not directories.in_use(directory):
            return None
        return msgspec.convert({**facts, "directory": directory}, Program, dec_hook=as_path)
    except msgspec.ValidationError:  # not published yet, removed meanwhile, or no file of ours
        return None


def as_path(kind: type, value: object) -> object:
    """Convert a name to a path, for msgspec."""
    if kind is not Path:
        raise NotImplementedError(f"cannot convert a value to {kind}")
    return Path(value) if isinstance(value, str) else value


def program_at(directory: Path, run_id: str) -> Program | None:
    """Return a program of this user: that of a runtime directory, or what has its id elsewhere; None: it does not run.

    Raises UsageError if the directory of the programs is not safe.
    """
    found = _read(directory)
    if found is not None and found.run_id == run_id:
        return found
    return next((program for program in programs() if program.run_id == run_id), None)


def programs() -> list[Program]:
    """Return the running programs of this user, the oldest first.

    Raises:
        UsageError: Their directory is not safe.
        OSError: It cannot be looked at (a disk that fails, no descriptor, no memory).
    """
    found = [_read(entry) for base in places.runtime_bases() for entry in base.iterdir()]
    return sorted((program for program in found if program is not None), key=lambda program: program.started)


def own_program() -> Program | None:
    """Return the program that this process is the root of, or None."""
    return _read(Path(current_runtime().directory)) if has_runtime() and current_runtime().is_root else None


class ToolConnection:
    """A proved connection to a program's root. Made by `connect`."""

    def __init__(
        self,
        sock: socket.socket,
        leftover: bytes,
        pid: int,
        on_event: Callable[[str, Body], None],
        on_close: Callable[[], object],
    ) -> None:
        self.pid = pid
        self._sock = sock
        self._decoder = control_decoder()
        self._leftover = leftover
        self._on_event = on_event
        self._on_close = on_close
        self._requests = Requests(self._send)
        self._send_lock = threading.Lock()
        self.closed: bool = False
        self._thread = threading.Thread(target=self._read_loop, name="meshrt-tool", daemon=True)
        self._thread.start()

    def ask(self, operation: Operation[A], timeout: float | None = 10.0) -> A:
        """Ask and wait.

        Raises:
            MeshError: The program refuses; text and class give the reason (`meshrt.errors`).
            ConnectionError: The program has ended.
            TimeoutError: No answer within ``timeout`` seconds.
        """
        answers: queue.SimpleQueue[tuple[Body | None, Exception | None]] = queue.SimpleQueue()
        number = self.begin(operation, lambda answer, error: answers.put((answer, error)))
        try:
            answer, error = answers.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no answer to {operation.name()} within {timeout:g} s") from None
        finally:
            self._requests.forget(number)
        if error is not None:
            raise error
        return operation.read_answer(answer or {})

    def begin(self, operation: Operation[Data], answered: Answered) -> int:
        """Ask and go on; returns the number of the request.

        Args:
            answered: Gets the answer or what `ask` raises; on the connection's own thread.
        Raises:
            ConnectionError: The program has ended.
        """
        try:
            return self._requests.ask(operation.name(), body_of(operation), answered)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _ended() from error

    def _send(self, request: Request) -> None:
        with self._send_lock:
            if self.closed:
                raise _ended()
            self._sock.sendall(control_frame(request))

    def close(self) -> None:
        """Disconnect; the program continues."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join(2.0)

    def abandon(self) -> None:
        """Close the socket in a forked child: the program is to see the end of the parent."""
        self._sock.close()

    def _read_loop(self) -> None:
        data = self._leftover
        try:
            while True:
                for frame in self._decoder.receive_data(data) if data else ():
                    self._on_message(TO_TERMINAL.decode(frame.payload))
                data = self._sock.recv(1 << 16)
                if not data:
                    break
        except (OSError, ProtocolError):
            pass  # as good as its end: said below
        finally:
            with self._send_lock:  # what was asked before that is told, what comes after it is refused
                self.closed = True
                self._sock.close()
            self._requests.fail(_ended())
            self._on_close()

    def _on_message(self, message: ToTerminal) -> None:
        if isinstance(message, Event):
            self._on_event(message.ev, message.body)
        else:
            self._requests.received(message)


def _ended() -> ConnectionError:
    return ConnectionError("the program has ended")


def connect(
    program: Program,
    on_event: Callable[[str, Body], None] = lambda _event, _body: None,
    on_close: Callable[[], object] = lambda: None,
) -> ToolConnection:
    """Connect to a program.

    Args:
        on_event: Called with each event. On the connection's own thread.
        on_close: Called once when the connection has ended. On the connection's own thread.

    Raises:
        ConnectionError: It has ended, or does not answer.
        AuthenticationError: The process that listens there does not hold the token.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        token = Secret.fromhex((program.directory / TOKEN).read_text())
        sock.settimeout(_CONNECT_SECONDS)
        sock.connect(str(program.directory / "tools"))
        if not same_user(sock):
            raise AuthenticationError(f"{program.directory} is served by another user")
        handshake = ClientHandshake(token, ROLE_TOOL, "tools")
        sock.sendall(handshake.hello())
        while not handshake.done:
            data = sock.recv(4096)
            if not data:
                raise ConnectionError("the program closed the connection")
            sock.sendall(handshake.receive_data(data))
        sock.settimeout(None)
        return ToolConnection(sock, handshake.leftover, program.pid, on_event, on_close)
    except (OSError, ValueError) as error:
        sock.close()
        raise ConnectionError(f"the program {program.pid} does not answer: {error}") from error
    except BaseException:
        sock.close()
        raise
