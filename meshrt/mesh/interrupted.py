"""What a script that Ctrl-C ends has waited for, and where those ranks are: as far as that is known here already.

No rank is asked for it: the user at the terminal wants the prompt back, and the ranks are about to be stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol

import msgspec

from meshrt.errors import CallTimeout
from meshrt.mesh.future import Future
from meshrt.mesh.sending import broadcast, send_call
from meshrt.mesh.target import Target
from meshrt.selection import fold_ranks
from meshrt.transport.pending import Pending
from meshrt.transport.queues import Written
from meshrt.transport.waiting import Waiting

__all__ = ["Interrupted", "waited_for"]

#: Lines about which rank waits for which, and one that counts the others.
_LINES = 4
#: Seconds from which on a call is said to hang; before, it may just have been sent.
_HANGS = 1.0
_ASK = "`python -m meshrt.debug -c where` shows where ranks are, while they run"


#: The functions that wait, and the name of what they wait for.
_WAITS = {Waiting.wait.__code__: "pending", Future._wait_on_loop.__code__: "self"}
#: The functions that wait until a call is written; their ``target`` and ``endpoint`` say which one.
_SENDS = {send_call.__code__, broadcast.__code__}


class Interrupted(msgspec.Struct, frozen=True):
    """The wait that an exception has ended.

    Attributes:
        call: Which ranks have not answered, and for how many seconds.
        text: The same in one line, and where the ranks are.
        waits: Which rank waits for which, in lines.
        hangs: It has lasted for a while, or ranks are known to be blocked.
    """

    call: CallTimeout
    text: str
    waits: Sequence[str]
    hangs: bool


class _Activity(Protocol):
    """What is known of the ranks (`meshrt.inspect.root.Activity`). Actors of ranks have keys: mesh id, rank, actor."""

    def standstill(self, keys: Sequence[tuple[str, int, str]]) -> str: ...

    def places(self, keys: Sequence[tuple[str, int, str]]) -> Sequence[str]: ...

    def wait_lines(self, most: int) -> Sequence[str]: ...


def waited_for(
    walker: TracebackType | None, given_up: Pending | None, activity: _Activity | None
) -> Interrupted | None:
    """Return the call that the ended wait was for; None if it was not a wait for a call.

    Args:
        walker: The traceback of the exception.
        given_up: What was awaited when Ctrl-C cancelled it, used if the traceback has no wait; or None.
        activity: What is known of the ranks (`meshrt.inspect.root.Activity`); None if nothing is.
    """
    pending = sending = None
    while walker is not None:
        frame = walker.tb_frame
        name = _WAITS.get(frame.f_code)
        pending = frame.f_locals.get(name, pending) if name is not None else pending
        sending = frame.f_locals if frame.f_code in _SENDS else sending
        walker = walker.tb_next
    pending = given_up if pending is None else pending
    if isinstance(pending, Written) and sending is not None:
        sent, what = pending.since, "messages not yet read by"
        call = _unsent(pending, sending["target"], sending["endpoint"])
    elif isinstance(pending, Future) and pending.tells:
        sent, what = pending.overdue(0).sent, "no answer from"
        call = pending.overdue(_seconds(sent) if sent else 0)
    else:
        return None  # also that of a stop: the user knows what is being stopped
    if not call.missing:
        # Nobody is known to owe a message to a port: there are no ranks to report on.
        return Interrupted(call, f"{call.what}: no message; {call.known}", (), hangs=False) if call.known else None
    keys = [(place.mesh_id, place.rank, place.actor) for place in call.missing]
    places: list[str] = []
    waits: Sequence[str] = ()
    if activity is not None:
        places = [*filter(None, [activity.standstill(keys)]), *activity.places(keys)]
        waits = activity.wait_lines(_LINES)
    ranks = fold_ranks(place.rank for place in call.missing)
    who = call.missing[0].where if len(call.missing) == 1 else f"ranks {ranks}"
    hangs = not sent or bool(places) or call.seconds >= _HANGS
    where = places if hangs else [_ASK]  # of a call that hangs, a report is kept
    text = "; ".join([f"{call.what}: {what} {len(call.missing)} of {call.total} ({who})", *where])
    return Interrupted(call, text, waits, hangs)


def _seconds(since: int) -> float:
    return round((time.monotonic_ns() - since) / 1e9, 1)


def _unsent(written: Written, target: Target, endpoint: str) -> CallTimeout:
    """Return which ranks do not take their messages, so that a thread waits in a call to them."""
    positions = [target.position(mesh_id, rank) for mesh_id, rank, _ in (out.key for out in written.slow)]
    places = [target.place(position) for position in sorted(p for p in positions if p is not None)]
    return CallTimeout(f"{target.name}.{endpoint}()", _seconds(written.since), places, len(target.shape))
