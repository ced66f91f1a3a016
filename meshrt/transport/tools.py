"""How terminals find the running programs of this user, and a terminal's end of the control socket: connect, ask.

Any thread may call `ToolConnection.request`; events come on the connection's own reader thread.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshrt.errors import AuthenticationError, MeshError, ProtocolError
from meshrt.hooks.facts import Body
from meshrt.transport import directories, dirlock, places
from meshrt.transport.link import same_user
from meshrt.transport.process import current_runtime, has_runtime
from meshrt.transport.writing import write_atomic
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_TOOL, ClientHandshake, Secret
from meshrt.wire.messages import control_frame, refused, unpack_control

__all__ = ["TOKEN", "Program", "ToolConnection", "connect", "own_program", "programs", "publish"]

#: The file with what a terminal proves.
TOKEN = "tools.token"

#: Where a thousand processes want the machine at once, a program that is well answers late.
_CONNECT_SECONDS = 60.0


@dataclass(frozen=True)
class Program:
    """A running program: its root process."""

    run_id: str
    pid: int
    argv: list[str]
    cwd: str
    #: Seconds since the epoch, wall clock.
    started: float
    directory: Path
    run_directory: Path


def publish(directory: Path, token: bytes, facts: Mapping[str, Any]) -> None:
    """Have terminals find this program, which listens already. Raises OSError.

    Args:
        directory: Its runtime directory.
        token: What terminals have to prove.
        facts: ``run_id``, ``cwd``, ``started`` and ``run_directory``, as in `Program`.
    """
    write_atomic(directory / TOKEN, token.hex())
    write_atomic(directory / dirlock.PROGRAM, json.dumps({**dirlock.identity(), "argv": sys.orig_argv, **facts}))


def _read(directory: Path) -> Program | None:
    try:
        facts = json.loads((directory / dirlock.PROGRAM).read_text())
        if not directories.in_use(directory):
            return None
        return Program(
            facts["run_id"],
            facts["pid"],
            list(facts["argv"]),
            facts["cwd"],
            facts["started"],
            directory,
            Path(facts["run_directory"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        # Not published yet, removed meanwhile, or no file of ours: no program to talk to.
        return None


def programs() -> list[Program]:
    """Return the running programs of this user, the oldest first. Raises UsageError if their directory is not safe."""
    found = [_read(entry) for base in places.runtime_bases() for entry in base.iterdir()]
    return sorted((program for program in found if program is not None), key=lambda program: program.started)


def own_program() -> Program | None:
    """Return the program that this process is the root of, or None."""
    if not has_runtime() or not current_runtime().is_root:
        return None
    return _read(Path(current_runtime().directory))


class ToolConnection:
    """A proved connection to a program's root. Made by `connect`."""

    def __init__(
        self,
        sock: socket.socket,
        leftover: bytes,
        pid: int,
        on_event: Callable[[str, Body], None],
        on_close: Callable[[], None],
    ) -> None:
        self.pid = pid
        self._sock = sock
        self._decoder = control_decoder()
        self._leftover = leftover
        self._on_event = on_event
        self._on_close = on_close
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._send_lock = threading.Lock()
        self._waiting: dict[int, Callable[[dict[str, Any] | None], None]] = {}
        self.closed = False
        self._thread = threading.Thread(target=self._read_loop, name="meshrt-tool", daemon=True)
        self._thread.start()

    def request(self, operation: str, body: Body, timeout: float | None = 10.0) -> Body:
        """Ask and wait.

        Raises:
            MeshError: The program refuses; the text says why, and the class what it is (`meshrt.errors`).
            ConnectionError: The program has ended.
            TimeoutError: No answer within ``timeout`` seconds.
        """
        event = threading.Event()
        answers: list[dict[str, Any] | None] = []

        def answered(answer: dict[str, Any] | None) -> None:
            answers.append(answer)
            event.set()

        number = self._send(operation, body, answered)
        try:
            if not event.wait(timeout):
                raise TimeoutError(f"no answer to {operation} within {timeout:g} s")
        finally:
            self._waiting.pop(number, None)
        return _body_of(answers[0])

    def begin(self, operation: str, body: Body, answered: Callable[[Body | None, Exception | None], None]) -> None:
        """Ask and go on. ``answered`` gets the answer or what `request` raises; on the connection's own thread.

        Raises:
            ConnectionError: The program has ended.
        """

        def done(answer: dict[str, Any] | None) -> None:
            try:
                body, problem = _body_of(answer), None
            except (MeshError, OSError) as error:
                body, problem = None, error
            answered(body, problem)

        self._send(operation, body, done)

    def _send(self, operation: str, body: Body, answered: Callable[[dict[str, Any] | None], None]) -> int:
        number = next(self._ids)
        with self._lock:
            if self.closed:
                raise ConnectionError("the program has ended")
            self._waiting[number] = answered
        try:
            with self._send_lock:
                self._sock.sendall(control_frame({"t": "op", "id": number, "op": operation, "body": body}))
        except BaseException as error:
            self._waiting.pop(number, None)
            if isinstance(error, BrokenPipeError | ConnectionResetError):
                raise ConnectionError("the program has ended") from error
            raise
        return number

    def close(self) -> None:
        """Disconnect; the program continues."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join(2.0)

    def _read_loop(self) -> None:
        data = self._leftover
        try:
            while True:
                for frame in self._decoder.receive_data(data) if data else ():
                    self._on_message(unpack_control(frame.payload))
                data = self._sock.recv(1 << 16)
                if not data:
                    break
        except (OSError, ProtocolError):
            pass  # as good as its end: said below
        finally:
            with self._lock:
                self.closed = True
                waiting, self._waiting = self._waiting, {}
            for answered in waiting.values():
                answered(None)
            self._sock.close()
            self._on_close()

    def _on_message(self, message: dict[str, Any]) -> None:
        if message["t"] == "ev":
            self._on_event(message["ev"], message["body"])
            return
        answered = self._waiting.pop(message["id"], None)
        if answered is not None:
            answered(message)


def _body_of(answer: dict[str, Any] | None) -> Body:
    if answer is None:
        raise ConnectionError("the program has ended")
    if answer["t"] == "no":
        raise refused(answer)
    return answer.get("body") or {}


def connect(
    program: Program,
    on_event: Callable[[str, Body], None] = lambda _event, _body: None,
    on_close: Callable[[], None] = lambda: None,
) -> ToolConnection:
    """Connect to a program.

    Args:
        on_event: Called with what comes without being asked for. On the connection's own thread.
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
    except (OSError, ValueError) as error:
        sock.close()
        raise ConnectionError(f"the program {program.pid} does not answer: {error}") from error
    except BaseException:
        sock.close()
        raise
    return ToolConnection(sock, handshake.leftover, program.pid, on_event, on_close)
