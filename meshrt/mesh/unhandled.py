"""Errors that no caller waits for, as they are said on the program's terminal: equal ones of many ranks together."""

from __future__ import annotations

from collections.abc import Callable

from meshrt.errors import RankPlace, RemoteException, one_line
from meshrt.selection import fold_ranks

__all__ = ["Unhandled"]

#: Seconds in which what follows an error is taken together.
_TOGETHER = 0.2
_HEADLINE = 300

_Key = tuple[str, str, str, str]


class Unhandled:
    """Says the first error of a kind in full, and of those that follow only the ranks. On the root's loop.

    Args:
        announce: Prints a line, or several.
        later: Runs a function after so many seconds.
    """

    def __init__(self, announce: Callable[[str], None], later: Callable[[float, Callable[[], None]], None]) -> None:
        self._announce = announce
        self._later = later
        #: What has been said, and the ranks of those that came since.
        self._following: dict[_Key, list[int]] = {}

    def say(self, place: RankPlace, call: str, remote: RemoteException) -> str:
        """Say it, now or together with others; returns all that there is to be said."""
        headline = f"{call} raised on {place.where}, and nobody waits for it"
        text = f"{headline}\n{remote.traceback.rstrip()}"
        key = (place.mesh_id, call, remote.type, _last_frame(remote.traceback))
        if key in self._following:
            self._following[key].append(place.rank)
        else:
            self._following[key] = []
            self._announce(text)
            self._later(_TOGETHER, lambda: self._say_rest(key, call, remote))
        return text

    def _say_rest(self, key: _Key, call: str, remote: RemoteException) -> None:
        ranks = self._following[key]
        if not ranks:
            del self._following[key]
            return
        self._following[key] = []
        times = f", {len(ranks)} times" if len(set(ranks)) < len(ranks) else ""
        what = one_line(f"{remote.type}: {remote.message}", _HEADLINE)
        word = "rank" if len(set(ranks)) == 1 else "ranks"
        self._announce(f"{call} raised so on {word} {fold_ranks(ranks)} too{times}: {what}")
        self._later(1.0, lambda: self._say_rest(key, call, remote))


def _last_frame(traceback: str) -> str:
    places = [line for line in traceback.splitlines() if line.lstrip().startswith('File "')]
    return places[-1] if places else ""
