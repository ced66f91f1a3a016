"""What an error tells the script about a failure: which failure it means, and the facts in the error itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec.structs import replace

from meshrt.errors import ActorError, CallTimeout, MeshError, ProcessDied, RankPlace
from meshrt.failure.capture import references
from meshrt.failure.causes import STOPPED
from meshrt.failure.record import ExceptionFacts, FailureRecord, Reference
from meshrt.files import is_library_file
from meshrt.hooks.fate import Fate
from meshrt.inspect.visibility import is_hidden_file
from meshrt.wire.codec import own_attribute

__all__ = ["call_of", "caller_of", "record_of", "sent_at", "silences", "stops_behind"]

#: Exceptions that interrupt user code: they are not the reason for an error.
_INTERRUPTS = ("StopInterrupt", "SystemExit", "CancelledError", "KeyboardInterrupt")


def silences(error: BaseException) -> Iterator[CallTimeout]:
    """Yield the time-outs in the chain of ``error``."""
    for each, _ in references(error):
        if isinstance(each, CallTimeout):
            yield each


def sent_at(error: BaseException) -> int:
    """Return when the call was sent that an error is about (monotonic ns); 0 if that is not known."""
    sent = (int(own_attribute(each, "__dict__").get("sent", 0)) for each, _ in references(error))
    return min((moment for moment in sent if moment), default=0)


def caller_of(error: BaseException) -> str:
    """Return the innermost line of the script that the error has passed; "" if there is none."""
    found = fallback = ""
    walker = own_attribute(error, "__traceback__")
    while walker is not None:
        code = walker.tb_frame.f_code
        if not is_hidden_file(code.co_filename):
            name = "" if code.co_name == "<module>" else f" in {code.co_name}"
            fallback = f"{code.co_filename}:{walker.tb_lineno}{name}"
            found = found if is_library_file(code.co_filename) else fallback
        walker = walker.tb_next
    return found or fallback


def call_of(error: BaseException) -> str:
    """Return the call that an error is about, ``"trainer.step()"``; "" if there is none."""
    for each, _ in references(error):
        facts = own_attribute(each, "__dict__")
        endpoint, place = facts.get("endpoint"), facts.get("place")
        if endpoint and isinstance(place, RankPlace) and place.actor:
            return f"{place.actor}.{endpoint}()"
    return ""


def record_of(error: BaseException, mesh: str, since: int = 0) -> FailureRecord | None:
    """Return a record from the facts in an error, for a failure whose record has not come; None if it has no facts.

    Args:
        mesh: Name of the mesh of the failure.
        since: Not before that (monotonic ns), if the error itself does not tell when its call was sent.
    """
    facts = own_attribute(error, "__dict__")
    place, endpoint = facts.get("place"), facts.get("endpoint", "")
    if not isinstance(error, MeshError) or not isinstance(place, RankPlace):
        return None
    now = time.monotonic_ns()
    record = FailureRecord(
        kind="exit",
        mesh_id=place.mesh_id,
        mesh=mesh,
        actor=place.actor,
        rank=place.rank,
        coordinates=dict(place.coordinates),
        host=place.host,
        pid=place.pid,
        endpoint=endpoint,
        waited_for=True,
        low=int(facts.get("sent", 0)) or since or now,
        high=now,
        time=time.time_ns() / 1e9,
    )
    if isinstance(error, ActorError):
        remote = facts["remote"]
        notes = (*remote.notes, *remote.traceback.splitlines()[-20:-1])
        exception = ExceptionFacts(remote.type, remote.message, notes=notes)
        return replace(record, kind="exception", id=remote.failure, exception=exception)
    if isinstance(error, ProcessDied):
        kind = "exit" if error.signal is None else "signal"
        fate = Fate("died", exit_code=error.exit_code, signal=error.signal, hint=error.hint)
        return replace(record, kind=kind, fate=fate)
    return replace(record, fate=Fate("died", hint=str(error).partition("\n")[0]))


def stops_behind(error: ExceptionFacts) -> tuple[Reference, ...]:
    """Return the ranks that were stopped, if an exception came from stops only; otherwise ()."""
    members = [linked for linked in error.linked if linked.relation == "member"]
    before = [linked for linked in error.linked if linked.relation != "member" and not _is_interrupt(linked)]
    if not (members or before):
        return (error.about,) if error.type == STOPPED and error.about is not None else ()
    found = [stops_behind(linked) for linked in (*members, *before)]
    return tuple(about for each in found for about in each) if all(found) else ()


def _is_interrupt(error: ExceptionFacts) -> bool:
    return error.type.rpartition(".")[2] in _INTERRUPTS
