"""What an agent answers: to a process that joins, to one that asks for code, and to one that uses the store.

It has proved the secret, and says anything then. Who asks gets an answer, or an error that it expects; nobody else is
told anything, and no descriptor is left open.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from meshrt.errors import MeshError, ProtocolError
from meshrt.host.code.asking import Asker, NoAnswerError
from meshrt.spmd.membership import _receive
from meshrt.store.messages import TO_PROCESS, Grant, Granted
from meshrt.store.registrar import Registrar
from meshrt.wire.code import Code
from meshrt.wire.control import Catalogue
from meshrt.wire.handshake import ROLE_CODE, ROLE_STORE, Secret, ServerHandshake
from meshrt.wire.meeting import FROM_MEETING
from tests.fuzz.examples import examples_of
from tests.fuzz.joining import messages_of, tell
from tests.fuzz.mutating import packed
from tests.fuzz.running import BAIT, Target

__all__ = ["TARGETS"]

_SECRET = Secret(b"s" * 32)


@contextlib.contextmanager
def _all_closed() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before, "descriptors are left open"


@contextlib.contextmanager
def _agent(role: int, data: bytes) -> Iterator[str]:
    """An agent that says this to the first one who has proved the secret; gives its path."""
    with (
        _all_closed(),
        tempfile.TemporaryDirectory(prefix="mf", dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = str(Path(folder) / "store.1")
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            sock, _ = listener.accept()
            handshake = ServerHandshake(_SECRET, role)
            with sock, contextlib.suppress(OSError):
                while not handshake.done:
                    sock.sendall(handshake.receive_data(sock.recv(256)))
                sock.recv(1 << 16)  # the question
                for message in messages_of(data):
                    tell(sock, message)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # whom nobody has dialled waits for nobody
            serving.join()


def _meeting(data: bytes) -> None:
    with _all_closed(), contextlib.ExitStack() as stack:
        ours, theirs = map(stack.enter_context, socket.socketpair())
        for message in messages_of(data):
            tell(theirs, message)
        theirs.shutdown(socket.SHUT_WR)
        try:
            _, descriptors = _receive(ours)
        except (OSError, ProtocolError):
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _code(data: bytes) -> None:
    with _agent(ROLE_CODE, data) as path:
        try:
            assert isinstance(Asker(path, _SECRET, 10.0).ask("a.module"), Code)
        except NoAnswerError:
            pass


def _store(data: bytes) -> None:
    with _agent(ROLE_STORE, data) as path:
        registrar = Registrar(os.path.dirname(path), _SECRET, 1)
        try:
            registrar.ask(lambda number: Grant(number, 4096), Granted)
        except (MeshError, OSError):
            pass
        registrar.settle()
        registrar.close()


def _examples(catalogue: Catalogue[Any], **fields: Any) -> Callable[[], list[bytes]]:
    return lambda: [*(packed([{**each, **fields}]) for each in examples_of(catalogue)), BAIT]


TARGETS = [
    Target("meeting-answer", _meeting, _examples(FROM_MEETING, fds=3), (), "msgpack", count=1000),
    Target("code-answer", _code, _examples(Catalogue(Code)), (), "msgpack", count=300),
    Target("store-answer", _store, _examples(TO_PROCESS, fds=1, id=1), (), "msgpack", count=300),
]
