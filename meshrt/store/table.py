"""The table of a host's segments: equal ones are one row, so that thousands make few rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from meshrt.store.registry import Segment

__all__ = ["held_by", "in_files", "segment_rows"]

#: How many names of segments a row has.
_NAMES = 3


def segment_rows(segments: Iterable[Segment], now: int, wanted: str | None = None) -> list[dict[str, Any]]:
    """Return the segments that are alike together.

    Each row: ``{"kind", "disk" (in a file), "site", "owner" (pid), "size" (bytes of one), "count", "holders": [[pid,
    count]], "age" (seconds, of the oldest), "names": the first of them}``.

    Args:
        now: Monotonic ns of this host.
        wanted: Those only whose name begins so, each for itself.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for segment in segments:
        name = f"{segment.id:016x}"
        if wanted is not None and not name.startswith(wanted):
            continue
        holders = tuple(sorted(segment.holders.items()))
        key = (segment.kind, segment.disk, segment.site, segment.owner, segment.size, holders)
        row = found.get(key if wanted is None else (name,))
        age = (now - segment.since) / 1e9
        if row is None:
            found[key if wanted is None else (name,)] = {
                "kind": segment.kind,
                "disk": segment.disk,
                "site": segment.site,
                "owner": segment.owner,
                "size": segment.size,
                "count": 1,
                "holders": [list(holder) for holder in holders],
                "age": age,
                "names": [name],
            }
            continue
        row["count"] += 1
        row["age"] = max(row["age"], age)
        if len(row["names"]) < _NAMES:
            row["names"].append(name)
    return list(found.values())


def held_by(segments: Iterable[Segment]) -> dict[int, list[int]]:
    """Return what each process has to do with the store, by pid, in bytes.

    ``[what it owns, what it holds of others, what it owns and only others hold still]``.
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
    return found


def in_files(segments: Iterable[Segment]) -> int:
    """Return how many bytes are in files, as there was no memory for them."""
    return sum(segment.size for segment in segments if segment.disk)
