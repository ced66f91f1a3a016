"""Evaluations for an IDE in this process, and how they are ended: the user's code may never return by itself.

::

    posted --a thread takes it--> at work --it returns--> (over)
                                     '--unwanted--> KeyboardInterrupt in it, again and again --> (over)

The main thread is interrupted by a signal, in the middle of what it waits for; another one at its next line of Python.
Values that are shown, names that are completed and variables that are set run the user's code as well: each is an
evaluation here.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType

from meshrt.debug.rank.suspended import holding, may_break, raise_in, take_back
from meshrt.debug.stepping import is_users
from meshrt.errors import MeshError
from meshrt.hooks.services import RankServices
from meshrt.inspect.visibility import is_debugging_file

__all__ = ["Evaluations", "evaluations", "interrupt"]

#: Seconds until it is tried again to interrupt something, at first and at most.
_AGAIN = 0.02
_AGAIN_MAX = 0.5
#: Seconds without anything at work after which nothing waits behind what has been interrupted.
_QUIET = 1.0


class _Evaluation:
    """An evaluation that a thread runs."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: It is to end; it has been interrupted; what was raised in it may still be under way.
        self.unwanted = False
        self.broken = False
        self.asynchronous = False


class Evaluations:
    """The evaluations of this process. Any thread, unless stated otherwise."""

    def __init__(self) -> None:
        self._posting = threading.Lock()
        #: The number of the latest one.
        self.posted = 0
        self._at_work: dict[int, _Evaluation] = {}
        #: What of the engine runs the code that an IDE has sent.
        self.evaluators: set[CodeType] = set()
        #: See `RankServices.typed`.
        self.typed: Callable[[bool], None] = lambda begins: None
        #: Held to raise something in another thread, and to end there what it would be raised in.
        self._breaking = threading.RLock()

    def post(self) -> int:
        """Return the number of a new evaluation that a thread will take."""
        with self._posting:
            self.posted += 1
            return self.posted

    def run(self, number: int, work: Callable[[], None]) -> bool:
        """Run an evaluation on the calling thread. Returns False if it was interrupted before it could answer."""
        ident = get_ident()
        outer = self._at_work.get(ident)
        this = self._at_work[ident] = _Evaluation(number)
        begun = done = ended = False
        while not ended:  # what is raised in it may arrive when it has just come to its end
            try:
                if not begun:
                    begun = True
                    self.typed(True)
                    work()
                    done = True
                self._end(ident, this, outer)
                ended = True
            except BaseException as error:
                if not this.broken or not isinstance(error, KeyboardInterrupt):
                    self._end(ident, this, outer)
                    raise
        return done

    def _end(self, ident: int, this: _Evaluation, outer: _Evaluation | None) -> None:
        def end() -> None:
            if outer is None:
                self._at_work.pop(ident, None)
                self.typed(False)
            else:
                self._at_work[ident] = outer
            if this.asynchronous:
                take_back()

        holding(self._breaking, end)

    def interrupt(self, latest: int) -> list[int]:
        """Interrupt evaluations up to number ``latest``, and return their threads; the main thread needs a signal."""
        found = []
        main = threading.main_thread().ident
        for ident, each in list(self._at_work.items()):
            if each.number > latest:
                continue
            found.append(ident)
            each.unwanted = True
            if ident != main:
                with self._breaking:
                    here = self._at_work.get(ident) is each
                    if here and self._may_break(sys._current_frames().get(ident)):
                        each.broken = each.asynchronous = True
                        raise_in(ident, KeyboardInterrupt)
        return found

    def break_here(self, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt if the calling thread runs an evaluation that has to end.

        Args:
            frame: The innermost stack frame of the thread; None if it waits in a ``get()``.
        """
        this = self._at_work.get(get_ident())
        if this is not None and this.unwanted and (frame is None or self._may_break(frame)):
            this.broken = True
            raise KeyboardInterrupt

    def forked(self) -> None:
        """In a forked child, where the lock may be held by a thread that is not there."""
        self._breaking = threading.RLock()

    def _may_break(self, frame: FrameType | None) -> bool:
        """Whether ``frame`` is in code of the user's, or in a wait for it: an answer is not to be torn in two."""
        allowed = may_break(frame, _WITHIN)
        while allowed and frame is not None and not is_users(frame):
            if is_debugging_file(frame.f_code.co_filename):
                return frame.f_code in self.evaluators
            frame = frame.f_back
        return allowed


_WITHIN = frozenset({Evaluations.run.__code__})
#: The evaluations of this process.
evaluations = Evaluations()


def interrupt(services: RankServices, say: Callable[[str], None], latest: int) -> None:
    """Interrupt evaluations as long as there are any: the user's code may catch what is raised in it. Any thread.

    Args:
        say: Called with a text for the user when there is an evaluation, and with an error. Any thread.
        latest: The number of the last evaluation to interrupt.
    """
    told, quiet = False, 0.0

    def attempt(pause: float) -> None:
        nonlocal told, quiet
        idents = evaluations.interrupt(latest)
        if idents:
            quiet = 0.0
            if not told:
                told = True
                say("the running evaluation is interrupted")
        elif quiet >= _QUIET:
            return
        if threading.main_thread().ident in idents:
            try:
                services.signal_main()
                services.interject(lambda _waited: evaluations.break_here(None))
            except MeshError as error:
                say(f"the running evaluation cannot be interrupted: {error}")
                return
        quiet += pause
        services.call_later(pause, lambda: attempt(min(2 * pause, _AGAIN_MAX)))

    attempt(_AGAIN)
