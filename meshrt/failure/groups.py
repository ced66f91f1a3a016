"""Which failures are alike: the same kind, the same masked text, raised at the same place."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable

from meshrt.failure.record import FailureRecord

__all__ = ["alike", "grouped"]

#: Parts of a text that differ between ranks that fail alike: numbers, addresses, quoted names with numbers in them.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_HEAD = 300


def alike(record: FailureRecord) -> Hashable:
    """Return a key that is equal for failures that a user would call the same."""
    error = record.exception
    if error is None:
        hint = record.hint if record.fate is None else record.fate.hint
        return record.kind, record.exit_code, record.signal, _masked(hint), record.endpoint
    chain = tuple(
        (each.type, _masked(each.message), tuple((frame.file, frame.line, frame.function) for frame in each.frames))
        for each in error.all()
    )
    return record.kind, record.actor, record.endpoint, _masked(record.what), chain


def grouped(records: Iterable[FailureRecord]) -> list[list[FailureRecord]]:
    """Return the records in groups that are alike, in the order in which they failed."""
    groups: dict[Hashable, list[FailureRecord]] = {}
    for record in sorted(records, key=lambda record: (record.high, record.mesh, record.rank)):
        groups.setdefault(alike(record), []).append(record)
    return list(groups.values())


def _masked(text: str) -> str:
    return _VARIABLE.sub("#", text.strip()[:_HEAD])
