"""What the script of a mesh tells its launcher: early, while an error leaves the script, and the report at the end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from meshrt.failure import telling
from meshrt.failure.capture import references
from meshrt.failure.causes import Verdict, is_consequence
from meshrt.failure.incident import Incident
from meshrt.failure.record import SCRIPT
from meshrt.failure.told import sent_at
from meshrt.failure.workers import NOTED_WITHIN, Word
from meshrt.hooks.services import RootServices
from meshrt.inspect.exceptions import chain_of
from meshrt.transport.launcher import launcher_file

__all__ = ["LastWords"]

#: Seconds after which the script checks whether an error is still being handled; and again.
_LOOK_AGAIN = 0.5


class LastWords:
    """What one script tells. On threads of the script.

    Args:
        is_own: Returns whether a mesh (by its id) belongs to this program.
    """

    def __init__(self, services: RootServices, is_own: Callable[[str], bool]) -> None:
        self._services = services
        self._is_own = is_own
        self._lock = threading.Lock()
        #: The error that was told early.
        self._early: BaseException | None = None

    def begin(self, error: BaseException) -> None:
        """An error leaves the block of a mesh: tell it at once, and withdraw it if the script handles the error."""
        if launcher_file() is None or not isinstance(error, Exception):
            return
        with self._lock:
            if self._early is error:
                return
            self._early = error
            # The error came from its rank some time after the call: its record will say when.
            telling.tell_error(error, final=False, foreign=self._is_foreign(error), since=sent_at(error))
        thread = threading.get_ident()
        self._services.call_soon(lambda: self._look_later(error, thread))

    def _look_later(self, error: BaseException, thread: int) -> None:
        self._services.call_later(_LOOK_AGAIN, lambda: self._look(error, thread))

    def _look(self, error: BaseException, thread: int) -> None:
        with self._lock:
            if self._early is not error:
                return
            if not _is_on_its_way(error, thread):
                self._early = None
                telling.withdraw()
                return
        self._look_later(error, thread)

    def of_thread(self, error: BaseException) -> None:
        """An error has ended a thread: tell it at once, for the script may go on until the launcher stops it."""
        with self._lock:
            telling.tell_thread_error(error, foreign=self._is_foreign(error), since=sent_at(error))

    def error(self, error: BaseException) -> None:
        """The script ends by an error of its own: tell it."""
        with self._lock:
            self._early = None
        telling.tell_error(error, foreign=self._is_foreign(error))

    def report(self, incident: Incident, verdict: Verdict, text: str) -> None:
        """The script ends because of failures of ranks: tell the report."""
        if launcher_file() is None:
            return
        with self._lock:
            self._early = None
        roots, now = verdict.roots, time.monotonic_ns()
        evidence = "own"
        if roots and not any(self._is_own(root.mesh_id) for root in roots):
            evidence = "carried"
        elif roots and all(map(is_consequence, roots)):
            evidence = "inferred"
        word = Word(
            evidence=evidence,
            # The time of a failure elsewhere is not known: some time before its error came here.
            low=0 if evidence == "carried" else min((root.low for root in roots), default=now) - NOTED_WITHIN,
            high=min((root.high for root in roots), default=now),
            second=int(min((root.time for root in roots if root.time), default=incident.began)),
            headline=f"{SCRIPT if roots[0].of_script else roots[0].place}: {roots[0].headline}"
            if roots
            else incident.error,
        )
        try:
            telling.tell(word, text, incident.to_plain())
        except OSError as error:
            self._services.announce(f"the failure could not be reported to the launcher: {error.strerror}")

    def _is_foreign(self, error: BaseException) -> bool:
        return not any(self._is_own(about.mesh_id) for _, about in references(error))


def _is_on_its_way(error: BaseException, thread: int) -> bool:
    """Whether a thread handles an error, or one that came from it; or has ended by it."""
    current = sys._current_exceptions().get(thread)
    value = current[1] if isinstance(current, tuple) else current  # a tuple before Python 3.12
    for each in (value, getattr(sys, "last_value", None)):
        if each is not None and any(one is error for one in (each, *(link.exception for link in chain_of(each)))):
            return True
    return False
