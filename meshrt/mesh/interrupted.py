"""What a script that Ctrl-C ends has waited for, and where those ranks stand: as far as that is known here already.

Nobody is asked: the person at the terminal wants the prompt back, and the ranks are about to be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from meshrt.errors import CallTimeout, RankPlace
from meshrt.mesh.future import Future
from meshrt.selection import fold_ranks
from meshrt.transport.waiting import Waiting

__all__ = ["waited_for"]

#: Places that are named.
_MOST = 2
_ASK = "`python -m meshrt.debug -c where` says where ranks are, while they run"


#: The functions that wait, and the name of what for.
_WAITS = {Waiting.wait.__code__: "pending", Future._wait_on_loop.__code__: "self"}


def waited_for(walker: TracebackType | None, activity: Any) -> str:
    """Return what the wait that an exception has ended was for, in one line; "" if there was none.

    Args:
        walker: The traceback of the exception.
        activity: What is known of the ranks (`meshrt.inspect.root.Activity`); None if nothing is.
    """
    pending = None
    while walker is not None:
        name = _WAITS.get(walker.tb_frame.f_code)
        pending = walker.tb_frame.f_locals[name] if name is not None else pending
        walker = walker.tb_next
    if not isinstance(pending, Future):
        return ""
    call = pending.overdue(0)
    if not call.missing:
        return ""
    where = "; ".join(_places(call, activity)) or _ASK
    ranks = call.folded or fold_ranks(place.rank for place in call.missing)
    who = call.missing[0].where if len(call.missing) == 1 else f"ranks {ranks}"
    return f"{call.what}: no answer from {len(call.missing)} of {call.total} ({who}); {where}"


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
