"""The agent's part: it passes questions of its ranks on to the root, once for all of them, and keeps the answers.

An answer that is older than `_FRESH` seconds, or than the mesh, is asked for again, with its digest: the root sends the
text only if that has changed.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from meshrt.errors import ProtocolError
from meshrt.transport.acceptor import SelectorReaders, listening_socket
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import Link
from meshrt.wire.code import AskCode, Code
from meshrt.wire.control import Catalogue, control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_CODE, ServerHandshake
from meshrt.wire.pending import PendingTable

__all__ = ["CodeRelay", "Kept", "code_path"]

#: Seconds for which an answer is used without a question to the root.
_FRESH = 1.0
#: Bytes of the longest file that is kept.
_KEPT_MAX = 4 << 20
_ASKED: Catalogue[AskCode] = Catalogue(AskCode)


def code_path(directory: str, agent_pid: int) -> str:
    """Return where the agent listens for processes that import."""
    return f"{directory}/code.{agent_pid}"


class _Waiting(NamedTuple):
    question: AskCode
    answer: Callable[[Code], object]


class _Entry(msgspec.Struct):
    """What was asked for: the last answer, when it came, and those who wait for the next one."""

    answer: Code | None = None
    came: float = 0.0
    waiting: list[_Waiting] = msgspec.field(default_factory=list)


class Kept:
    """The answers that the agent keeps. One thread.

    Args:
        ask: Asks the root.
        warn: Takes a line for the user.
        host: The name of this host, for that.
        clock: Seconds.
    """

    def __init__(
        self,
        ask: Callable[[AskCode], object],
        warn: Callable[[str], object],
        host: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._warn = warn
        self._host = host
        self._clock = clock
        self._entries: dict[tuple[str, str, int], _Entry] = {}
        #: Questions to the root that are open.
        self._open: PendingTable[tuple[str, str, int]] = PendingTable()
        #: Files that are different here, which the user was told.
        self._told: set[str] = set()

    def asked(self, question: AskCode, answer: Callable[[Code], object]) -> None:
        """A process asks; ``answer`` is called once, now or later."""
        key = question.module, question.file, question.offset
        entry = self._entries.setdefault(key, _Entry())
        if entry.answer is not None and self._clock() - entry.came < _FRESH:
            self._reply(_Waiting(question, answer), entry.answer)
            return
        entry.waiting.append(_Waiting(question, answer))
        if len(entry.waiting) == 1:
            known = "" if entry.answer is None else entry.answer.digest
            self._ask(AskCode(self._open.add(key), *key, known))

    def compare_again(self) -> None:
        """A mesh is started, after files may have been changed: what is kept is compared before it is used."""
        for entry in self._entries.values():
            entry.came = -_FRESH

    def answered(self, code: Code) -> None:
        """The root has answered."""
        key = self._open.remove(code.id)
        if key is None:
            return
        entry = self._entries[key]
        if code.data is None and entry.answer is not None and entry.answer.digest == code.digest:
            code = msgspec.structs.replace(code, data=entry.answer.data)
        waiting, entry.waiting = entry.waiting, []
        entry.answer, entry.came = code, self._clock()
        if code.size > _KEPT_MAX:
            del self._entries[key]
        for each in waiting:
            self._reply(each, code)

    def _reply(self, waiting: _Waiting, code: Code) -> None:
        question, answer = waiting
        equal = bool(question.known) and question.known == code.digest
        if question.known and not equal and code.kind == "source" and code.path not in self._told:
            self._told.add(code.path)
            self._warn(f"{code.path} of host {self._host} differs from that of the script, which the ranks use")
        answer(msgspec.structs.replace(code, id=question.id, data=None if equal else code.data))


class CodeRelay:
    """Listens at `code_path`. One thread: that of the selector.

    Args:
        selector: Its keys' data are called with the events.
        path: Where it listens.
        secret: Processes prove that they have it.
        kept: Answers.
        later: Calls a function after so many seconds.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        path: str,
        secret: bytes,
        kept: Kept,
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._selector = selector
        self._kept = kept
        listener = listening_socket(path)
        readers = SelectorReaders(selector)
        self._entrance: Entrance[socket.socket] = Entrance(
            readers, listener, "a process that imports", secret, ROLE_CODE, self._let_in, later
        )
        self._entrance.open()

    def _let_in(self, sock: socket.socket, handshake: ServerHandshake) -> None:
        link = Link(sock, control_decoder())
        self._selector.register(sock, selectors.EVENT_READ, partial(self._on_event, link))
        self._take(link, handshake.leftover)

    def _on_event(self, link: Link, events: int) -> None:
        if events & selectors.EVENT_WRITE and link.flush():
            self._selector.modify(link.sock, selectors.EVENT_READ, partial(self._on_event, link))
        if events & selectors.EVENT_READ:
            self._take(link)

    def _take(self, link: Link, data: bytes | None = None) -> None:
        try:
            frames = link.read() if data is None else link.feed(data)
            for frame in frames or ():
                self._kept.asked(_ASKED.decode(frame.payload), partial(self._send, link))
        except ProtocolError:
            frames = None
        if frames is None and not link.closed:
            self._selector.unregister(link.sock)
            link.close()

    def _send(self, link: Link, code: Code) -> None:
        if not link.send([control_frame(code)]):
            with contextlib.suppress(KeyError, ValueError):  # closed meanwhile
                events = selectors.EVENT_READ | selectors.EVENT_WRITE
                self._selector.modify(link.sock, events, partial(self._on_event, link))
