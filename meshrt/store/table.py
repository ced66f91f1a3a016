"""The table of a host's segments: equal ones are one row, so that thousands make few rows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from meshrt.hooks.measured import ReferenceRow
from meshrt.store.registry import Segment

__all__ = ["held_by", "in_files", "segment_rows"]

#: How many names of segments a row has.
_NAMES = 3


def segment_rows(segments: Iterable[Segment], now: int, wanted: str | None = None) -> list[ReferenceRow]:
    """Return the segments that are alike together.

    Args:
        now: Monotonic ns of this host.
        wanted: Those only whose name begins so, each for itself.
    """
    found: dict[Hashable, list[Segment]] = {}
    for segment in segments:
        if wanted is None:
            holders = frozenset(segment.holders.items())
            key: Hashable = (segment.kind, segment.disk, segment.site, segment.owner, segment.size, holders)
            found.setdefault(key, []).append(segment)
        elif _name(segment).startswith(wanted):
            found[segment.id] = [segment]
    return [_row(alike, now) for alike in found.values()]


def _row(alike: Sequence[Segment], now: int) -> ReferenceRow:
    first = alike[0]
    return ReferenceRow(
        kind=first.kind,
        disk=first.disk,
        site=first.site,
        owner=first.owner,
        size=first.size,
        count=len(alike),
        holders=sorted(first.holders.items()),
        age=(now - min(segment.since for segment in alike)) / 1e9,
        names=[_name(segment) for segment in alike[:_NAMES]],
    )


def _name(segment: Segment) -> str:
    return f"{segment.id:016x}"


def held_by(segments: Iterable[Segment]) -> dict[int, tuple[int, int, int]]:
    """Return what each process has to do with the store, by pid, in bytes.

    What it owns, what it holds of others, what it owns and only others hold still.
    """
    found: dict[int, list[int]] = {}
    for segment in segments:
        sums = found.setdefault(segment.owner, [0, 0, 0])
        sums[0] += segment.size
        if segment.holders and segment.owner not in segment.holders:
            sums[2] += segment.size
        for pid in segment.holders:
            if pid != segment.owner:
                found.setdefault(pid, [0, 0, 0])[1] += segment.size
    return {pid: (own, held, pinned) for pid, (own, held, pinned) in found.items()}


def in_files(segments: Iterable[Segment]) -> int:
    """Return how many bytes are in files, as there was no memory for them."""
    return sum(segment.size for segment in segments if segment.disk)
