"""A number for each question, and what waits for its answer until that is removed."""

from __future__ import annotations

from meshrt.wire.pending import PendingTable


def test_each_is_found_by_its_number_until_it_is_removed() -> None:
    pending: PendingTable[str] = PendingTable()
    first, second = pending.add("first"), pending.add("second")
    assert first != second and len(pending) == 2
    assert (pending.find(first), pending.find(second), pending.find(99)) == ("first", "second", None)
    pending.replace(first, "another")
    assert pending.find(first) == "another"
    assert (pending.remove(first), pending.remove(first)) == ("another", None)
    assert pending.find(first) is None
    assert pending.waiting() == ((second, "second"),)
    assert list(pending.clear()) == ["second"] and len(pending) == 0
    assert pending.add("third") not in (first, second), "a late answer is for nothing that is asked later"
