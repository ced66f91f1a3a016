"""The spans of one rank: what its endpoints have done, in a ring, until a terminal fetches them.

A call: ``entered -> open -> ended``, in the ring from then on, or ``running -> open`` if it began before the recording.
The newest `CAPACITY` spans are kept, and as many calls that were sent; spans that are pushed out are counted.

Endpoints record on their threads, and a debugger may stop them in the middle of it, so there is no lock: every step is
one operation on a dict or a deque, which is atomic in the interpreter. Only the control thread reads.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from meshrt.hooks.facts import ActorState, EndpointCall
from meshrt.timeline.operations import Part, Row, Sent
from meshrt.transport.process import current_runtime, has_runtime

__all__ = ["BEGUN_BEFORE", "CAPACITY", "NOT_ENDED", "Recorder"]

#: Spans of one rank that wait to be fetched, and calls that it has sent: about 10 MB if all of them do.
CAPACITY = 20_000
#: Which end of a span is missing.
BEGUN_BEFORE, NOT_ENDED = 1, 2
#: Bytes of a span on the wire, without its texts, at most; and characters of a text.
_ROW = 56
_TEXT = 200


#: A call that runs, kept alive because its identity is the key: call, number, begin, thread, whether it was adopted.
_Open = tuple[EndpointCall, int, int, int, bool]
#: The fields of a `Row`, with texts instead of their indices.
_Texts = tuple[int, int, int, int, str, str, str, int, int, int]
#: A call that has ended: its serial number, then its row. It holds only numbers and texts: the garbage collector does
#: not traverse it again and again.
_Span = tuple[int, int, int, int, int, str, str, str, int, int, int]


class Recorder:
    """Records from its creation on. `enter`, `exit` and `sent` are hooks.

    Args:
        current: Returns the call that runs on the calling thread.
        capacity: Spans that are kept, and calls that were sent.
        clock: Returns monotonic ns.

    Attributes:
        hooks: Functions that take it out of the hooks; `end` calls them.
    """

    def __init__(
        self,
        current: Callable[[], EndpointCall | None],
        capacity: int = CAPACITY,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._current = current
        self._clock = clock
        self.begun = clock()
        self.hooks: list[Callable[[], None]] = []
        self._ended = 0
        self._numbers = itertools.count(1)
        self._serials = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._spans: deque[_Span] = deque(maxlen=capacity)
        #: Number of the call in this process, when it was sent, and in which span.
        self._sends: deque[Sent] = deque(maxlen=capacity)
        self._threads: dict[int, str] = {}
        #: Number of spans that were fetched, and the last serial number among them: the spans between were dropped.
        self._taken = self._last = 0
        #: The part that was fetched last, kept until the terminal confirms it, and its number.
        self._part: Part | None = None
        self._parts = 0

    # -- on the threads of the actors

    def enter(self, call: EndpointCall) -> None:
        """A call begins."""
        self.began(call, self._clock())

    def began(self, call: EndpointCall, begin: int) -> None:
        """A call has begun at ``begin``, on the calling thread."""
        number = next(self._numbers)
        self._open[id(call)] = (call, number, begin, self._named(threading.current_thread()), False)

    def exit(self, call: EndpointCall) -> None:
        """A call has ended; the exception that it raised is being handled."""
        error = sys.exception()
        self.ended(call, "" if error is None else type(error).__name__)

    def ended(self, call: EndpointCall, raised: str = "") -> None:
        """A call has ended; ``raised``: the class of its exception, or ""."""
        found = self._open.pop(id(call), None)
        if found is not None:
            self._spans.append((next(self._serials), *_row(found, self._clock(), raised, 0)))

    def sent(self, call_id: int) -> None:
        """A call is sent to another rank."""
        call = self._current()
        found = None if call is None else self._open.get(id(call))
        if found is not None:
            self._sends.append(Sent(call_id, self._clock(), found[1]))

    def _named(self, thread: threading.Thread) -> int:
        # In a fork, the main thread still has the native id that it had in the parent.
        number = os.getpid() if thread is threading.main_thread() else thread.native_id or 0
        if number not in self._threads:
            self._threads[number] = thread.name[:_TEXT]
        return number

    # -- on the control thread

    def adopt(self, actors: Sequence[ActorState]) -> None:
        """Add the calls that run already, once the hooks are set."""
        threads = {thread.ident: thread for thread in threading.enumerate()}
        for actor in actors:
            thread = threads.get(actor.thread)
            number = 0 if thread is None else self._named(thread)
            for call in _calls(actor):
                self._open.setdefault(id(call), (call, next(self._numbers), self.begun, number, True))

    def end(self) -> None:
        """Record no more; recorded spans can still be taken. A repeated call has no effect."""
        for remove in self.hooks:
            remove()
        self._ended = self._ended or self._clock()

    def take(self, actors: Sequence[ActorState], room: int, got: int) -> Part:
        """Return the calls that have ended, the oldest first, as many as fit into ``room`` bytes.

        Args:
            actors: The actors of this rank.
            room: Bytes of the part, at most.
            got: Number of the last part that the terminal has got; if that is not the last one, it is returned again.
        """
        if self._part is not None and self._part.part != got:
            return replace(self._part, more=True)
        self._parts += 1
        self._part = self._next(actors, room)
        return self._part

    def _next(self, actors: Sequence[ActorState], room: int) -> Part:
        texts: dict[str, int] = {}
        left = room

        def text(value: str) -> int:
            nonlocal left
            value = value[:_TEXT]
            if value not in texts:
                left -= len(value.encode("utf-8", "backslashreplace")) + 5
                texts[value] = len(texts)
            return texts[value]

        def fitted(row: _Texts) -> Row:
            nonlocal left
            left -= _ROW
            return Row(*row[:4], text(row[4]), text(row[5]), text(row[6]), *row[7:])

        now = self._ended or self._clock()
        runs = {id(call) for actor in actors for call in _calls(actor)}
        # A call that was adopted while it ended has no end event: it is left out.
        running = [each for key, each in self._open.copy().items() if not each[4] or key in runs]
        running.sort(key=lambda each: each[2])
        open_rows: list[Row] = []
        while len(open_rows) < len(running) and left > room // 2:  # thousands may run; the oldest ones are returned
            each = running[len(open_rows)]
            open_rows.append(fitted(_row(each, max(now, each[2]), "", NOT_ENDED)))
        sends = []
        while self._sends and left > 0:
            sends.append(self._sends.popleft())
            left -= 24
        spans = []
        while self._spans and left > 0:
            span = self._spans.popleft()
            self._taken, self._last = self._taken + 1, max(self._last, span[0])
            spans.append(fitted(span[1:]))
        return Part(
            part=self._parts,
            pid=os.getpid(),
            texts=list(texts),
            spans=spans,
            open=open_rows,
            sends=sends,
            threads=list(self._threads.copy().items()),
            dropped=self._last - self._taken,
            more=bool(self._spans or self._sends),
            process=current_runtime().store.identity().number if has_runtime() else 0,
        )


def _row(found: _Open, end: int, raised: str, cut: int) -> _Texts:
    call, number, begin, thread, adopted = found
    cut |= BEGUN_BEFORE if adopted else 0
    return number, begin, end, thread, call.actor, call.endpoint, raised, call.caller, call.call_id, cut


def _calls(actor: ActorState) -> list[EndpointCall]:
    return [call for call in (actor.call, *actor.concurrent.values()) if call is not None]
