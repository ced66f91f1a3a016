"""The id of the next program."""

from __future__ import annotations

from meshrt.mesh.run_id import next_run_id, take_run_id


def test_it_is_known_before_it_is_taken_and_taken_once() -> None:
    known = next_run_id()
    assert known == next_run_id() == take_run_id()
    assert len(known) == 8 and int(known, 16) >= 0
    assert next_run_id() != known
