"""What a script that Ctrl-C ends has waited for, and where those ranks stand: as far as that is known here already.

Nobody is asked for the text: the person at the terminal wants the prompt back, and the ranks are about to be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from meshrt.errors import CallTimeout, RankPlace
from meshrt.mesh.future import Future
from meshrt.selection import fold_ranks
from meshrt.transport.waiting import Waiting

__all__ = ["Interrupted", "waited_for"]

#: Places that are named.
_MOST = 2
#: Lines about who waits for whom, and one that counts the others.
_LINES = 4
#: Seconds from which on a call is said to hang; before, it may just have been sent.
_HANGS = 1.0
_ASK = "`python -m meshrt.debug -c where` says where ranks are, while they run"


#: The functions that wait, and the name of what for.
_WAITS = {Waiting.wait.__code__: "pending", Future._wait_on_loop.__code__: "self"}


@dataclass(frozen=True, slots=True)
class Interrupted:
    """What a wait was for that an exception has ended.

    Attributes:
        call: Who has not answered, and for how many seconds.
        text: The same in one line, and where they stand.
        waits: Who waits for whom, in lines.
        hangs: It has lasted for a while, or ranks are known to stand still.
    """

    call: CallTimeout
    text: str
    waits: tuple[str, ...]
    hangs: bool


def waited_for(walker: TracebackType | None, activity: Any) -> Interrupted | None:
    """Return what the wait that an exception has ended was for; None if it was for no call.

    Args:
        walker: The traceback of the exception.
        activity: What is known of the ranks (`meshrt.inspect.root.Activity`); None if nothing is.
    """
    pending = None
    while walker is not None:
        name = _WAITS.get(walker.tb_frame.f_code)
        pending = walker.tb_frame.f_locals[name] if name is not None else pending
        walker = walker.tb_next
    if not (isinstance(pending, Future) and pending.tells):
        return None  # also that of a stop: whoever is in a hurry knows what is being stopped
    sent = pending.overdue(0).sent
    call = pending.overdue(round((time.monotonic_ns() - sent) / 1e9, 1) if sent else 0)
    if not call.missing:
        return None
    keys = [(place.mesh_id, place.rank, place.actor) for place in call.missing]
    kept = activity.standstill(keys) if activity is not None else ""
    places = [*([kept] if kept else []), *_places(call, activity)]
    ranks = call.folded or fold_ranks(place.rank for place in call.missing)
    who = call.missing[0].where if len(call.missing) == 1 else f"ranks {ranks}"
    hangs = not sent or bool(places) or call.seconds >= _HANGS
    where = places if hangs else [_ASK]  # of a call that hangs, a report is kept
    text = "; ".join([f"{call.what}: no answer from {len(call.missing)} of {call.total} ({who})", *where])
    waits = tuple(activity.wait_lines(_LINES)) if activity is not None else ()
    return Interrupted(call, text, waits, hangs)


def _places(call: CallTimeout, activity: Any) -> Iterator[str]:
    """Say where those stand of whom it is known, the most first."""
    if activity is None:
        return
    found: dict[tuple[str, int, str], list[tuple[RankPlace, float]]] = {}
    for place in call.missing:
        row = activity.get(place.mesh_id, place.rank, place.actor)
        if row is not None and row.state == "blocked" and row.place[0]:
            found.setdefault(row.place, []).append((place, row.since))
    ordered = sorted(found.items(), key=lambda entry: -len(entry[1]))
    for (file, line, function), members in ordered[:_MOST]:
        ranks = fold_ranks(place.rank for place, _ in members)
        seconds = time.time_ns() / 1e9 - min(since for _, since in members)
        word = "rank" if len(members) == 1 else "ranks"
        yield f"{word} {ranks} blocked at {file}:{line}, in {function}, for {max(seconds, 1):.0f} s"
    if len(ordered) > _MOST:
        yield f"others at {len(ordered) - _MOST} more places"
