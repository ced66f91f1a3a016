"""How a process of a rank asks for code: it connects to its agent, asks, and waits. Any thread of any such process.

Each question is a connection of its own. So a fork of a rank may ask, too, and threads do not wait for each other.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from typing import Protocol

import msgspec

from meshrt.errors import ProtocolError
from meshrt.transport.link import same_user
from meshrt.wire.code import PIECE, AskCode, Code
from meshrt.wire.control import Catalogue, control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_CODE, ClientHandshake, Secret

__all__ = ["Asker", "Asks", "NoAnswerError"]

#: Seconds for an answer, and after how many the user is told that something waits.
_LIMIT = 60.0
_TELL = 5.0
_ANSWERS: Catalogue[Code] = Catalogue(Code)


class NoAnswerError(Exception):
    """The script's machine, or the agent, has not answered; the text says for how long, or why."""


class Asks(Protocol):
    """What asks the root: an `Asker`."""

    def ask(self, module: str, file: str = "", known: str = "", limit: float | None = None) -> Code:
        """Return the answer. Raises NoAnswerError."""


class Asker:
    """Asks the agent.

    Args:
        path: Where that listens.
        secret: Both prove that they have it.
        limit: Seconds for an answer.
    """

    def __init__(self, path: str, secret: Secret, limit: float = _LIMIT) -> None:
        self._path = path
        self._secret = secret
        self._limit = limit

    def ask(self, module: str, file: str = "", known: str = "", limit: float | None = None) -> Code:
        """Return what a module, a file of it, or a source file is, with all of its data; see `AskCode`.

        Args:
            limit: Seconds, if not those of this object.
        Raises:
            NoAnswerError: There was no answer.
        """
        what = module if not file else f"{file} of {module}" if module else file
        deadline = time.monotonic() + (self._limit if limit is None else limit)
        try:
            with _Connection(self._path, self._secret, deadline, what) as connection:
                code = connection.ask(AskCode(1, module, file, 0, known))
                if code.data is None or code.size <= PIECE:
                    return code
                data = bytearray(code.data)
                while len(data) < code.size:
                    piece = connection.ask(AskCode(1, module, file, len(data)))
                    if piece.digest != code.digest or not piece.data:
                        raise NoAnswerError(f"{code.path} was changed while it was read")
                    data += piece.data
                return msgspec.structs.replace(code, data=bytes(data))
        except TimeoutError:
            seconds = self._limit if limit is None else limit
            raise NoAnswerError(f"the script's machine has not answered for {seconds:g} s") from None
        except (OSError, ProtocolError) as error:
            raise NoAnswerError(f"the host agent cannot be asked: {error}") from None


class _Connection:
    def __init__(self, path: str, secret: bytes, deadline: float, what: str) -> None:
        self._deadline = deadline
        self._what = what
        self._tell_at = time.monotonic() + _TELL
        self._decoder = control_decoder()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(max(0.001, deadline - time.monotonic()))
            self._sock.connect(path)
            if not same_user(self._sock):
                raise ProtocolError(f"{path} is served by another user")
            handshake = ClientHandshake(secret, ROLE_CODE, "code")
            self._sock.sendall(handshake.hello())
            while not handshake.done:
                self._sock.sendall(handshake.receive_data(self._receive()))
        except BaseException:
            self._sock.close()
            raise

    def __enter__(self) -> _Connection:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._sock.close()

    def ask(self, question: AskCode) -> Code:
        """Return the answer. Raises TimeoutError, OSError, ProtocolError."""
        self._sock.sendall(control_frame(question))
        while True:
            frames = self._decoder.receive_data(self._receive())
            if frames:
                return _ANSWERS.decode(frames[0].payload)

    def _receive(self) -> bytes:
        while True:
            now = time.monotonic()
            if now >= self._tell_at:  # also where this thread ran again only behind the deadline
                self._tell_at = float("inf")
                self._tell()
            if now >= self._deadline:
                raise TimeoutError
            self._sock.settimeout(max(0.001, min(self._deadline, self._tell_at) - now))
            with contextlib.suppress(TimeoutError):
                data = self._sock.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("the agent has closed the connection")
                return data

    def _tell(self) -> None:
        text = f"meshrt: {self._what} was requested from the script's machine: no answer for {_TELL:g} s\n"
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
            sys.stderr.flush()
