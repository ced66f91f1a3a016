"""A recording in the trace event format that Perfetto and ``chrome://tracing`` open. Pure.

Each rank is a process, named by its mesh and coordinates, and so is the script, whose spans are the calls that it waits
for. The pid of a process is its own, unless several on different machines have that pid. Each span is a complete event
(``X``) on its thread. Spans of one thread that overlap, as those of concurrent endpoints do, are put on lanes of their
own. An arrow (``s`` to ``f``) leads from the span in which a call was sent to the span that the call has begun, if both
were recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from meshrt.show.records import Schema, to_text
from meshrt.timeline.collected import PIDS, SCRIPT, Collected, RankTrack, Span

__all__ = ["SCHEMA", "pieces"]

SCHEMA = Schema("meshrt timeline", 1)
#: Further lanes of a thread are threads of the trace: their numbers are above all thread ids of Linux.
_LANE = 1 << 22

_Placed = list[tuple[Span, int]]


def pieces(collected: Collected, facts: dict[str, object]) -> Iterator[str]:
    """Return the text of the file in pieces: one JSON object, with one event a line.

    Args:
        facts: Further facts of the recording, written into the file.
    """
    yield '{"displayTimeUnit": "ms", "otherData": ' + to_text(SCHEMA.document(facts)) + ', "traceEvents": [\n'
    separator = ""
    for event in _events(collected):
        yield separator + to_text(event)
        separator = ",\n"
    yield "\n]}\n"


def _events(collected: Collected) -> Iterator[dict[str, object]]:
    tracks = sorted(collected.tracks.values(), key=_order)
    placed = {track.number: _placed([*track.spans, *track.open]) for track in tracks}
    pids = _pids(tracks)
    start = min((span.begin for spans in placed.values() for span, _ in spans), default=0)
    for index, track in enumerate(tracks):
        yield from _names(index, track, pids[track.number], placed[track.number])
    for track in tracks:
        for span, lane in placed[track.number]:
            yield _complete(track, pids[track.number], span, lane, start)
    yield from _arrows(collected, placed, pids, start)


def _pids(tracks: Sequence[RankTrack]) -> dict[int, int]:
    """Return what each process is called in the file, by its number."""
    count = Counter(track.pid for track in tracks)
    return {track.number: track.pid if count[track.pid] == 1 else track.number for track in tracks}


def _order(track: RankTrack) -> tuple[bool, str, int]:
    """Return a sort key: the script comes first, then ranks, by mesh."""
    return track.rank != SCRIPT, track.name.partition(" rank ")[0], track.rank


def _placed(spans: Sequence[Span]) -> _Placed:
    """Return each span with its lane: the first lane that is free when the span begins."""
    placed: _Placed = []
    lanes: dict[int, list[int]] = {}
    for span in sorted(spans, key=lambda span: (span.begin, span.number)):
        ends = lanes.setdefault(span.thread, [])
        free = next((lane for lane, end in enumerate(ends) if end <= span.begin), len(ends))
        ends[free : free + 1] = [span.end]
        placed.append((span, span.thread + free * _LANE))
    return placed


def _names(index: int, track: RankTrack, pid: int, placed: _Placed) -> Iterator[dict[str, object]]:
    def meta(what: str, lane: int, **args: object) -> dict[str, object]:
        return {"ph": "M", "name": what, "pid": pid, "tid": lane, "ts": 0, "args": args}

    yield meta("process_name", track.pid, name=track.name)
    where = f" on {track.host}" if track.host else ""
    yield meta("process_labels", track.pid, labels=f"pid {track.pid}{where}")
    yield meta("process_sort_index", track.pid, sort_index=index)
    for lane in sorted({lane for _, lane in placed}):
        further, thread = divmod(lane, _LANE)
        name = track.threads.get(thread, "a thread") + (f" ({further + 1})" if further else "")
        yield meta("thread_name", lane, name=name)
        yield meta("thread_sort_index", lane, sort_index=further)


def _micros(nanoseconds: int) -> float:
    return nanoseconds / 1000


def _complete(track: RankTrack, pid: int, span: Span, lane: int, start: int) -> dict[str, object]:
    args: dict[str, object] = {"actor": span.actor, "endpoint": span.endpoint, "call": span.call_id}
    if span.caller:
        args["caller"] = span.caller % PIDS
    if span.cut:
        args["cut"] = span.cut
    if "not ended" not in span.cut:
        returned = "answered" if track.rank == SCRIPT else "returned"  # a result or an error: not read yet
        args["outcome"] = f"raised {span.raised}" if span.raised else returned
    kind = "call" if track.rank == SCRIPT else "endpoint"
    return {
        "ph": "X", "name": f"{span.actor}.{span.endpoint}", "cat": kind, "pid": pid, "tid": lane,
        "ts": _micros(span.begin - start), "dur": _micros(max(0, span.end - span.begin)), "args": args,
    }  # fmt: skip


def _arrows(
    collected: Collected, placed: dict[int, _Placed], pids: Mapping[int, int], start: int
) -> Iterable[dict[str, object]]:
    lanes = {process: {span.number: lane for span, lane in spans} for process, spans in placed.items()}
    number = 0
    for process, spans in placed.items():
        for span, lane in spans:
            caller = collected.tracks.get(span.caller)
            when, sender = caller.sends.get(span.call_id, (0, 0)) if caller is not None else (0, 0)
            if caller is None or sender not in lanes[caller.number] or span.cut.startswith("began"):
                continue
            number += 1
            common = {"name": "call", "cat": "call", "id": number}
            ends = {"pid": pids[caller.number], "tid": lanes[caller.number][sender], "ts": _micros(when - start)}
            yield {"ph": "s", **common, **ends}
            yield {"ph": "f", "bp": "e", **common, "pid": pids[process], "tid": lane, "ts": _micros(span.begin - start)}
