from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.dap.router.ids import Ids

RANKS = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(["threadId", "frameId", "variablesReference"])


@given(st.lists(st.tuples(RANKS, KINDS, st.integers(1, 5))))
def test_there_and_back(things: list[tuple[str, str, int]]) -> None:
    ids: Ids[str] = Ids()
    numbers = {thing: ids.here(*thing) for thing in things}
    assert len(set(numbers.values())) == len(numbers)
    for (whose, kind, number), here in numbers.items():
        assert ids.here(whose, kind, number) == here
        assert ids.there(here, kind) == (whose, number)
        assert ids.there(here, "sourceReference") is None


def test_nothing_stays_nothing_and_answers_are_rewritten_at_any_depth() -> None:
    ids: Ids[str] = Ids()
    assert ids.here("a", "variablesReference", 0) == 0
    assert ids.there(1, "frameId") is None
    seven = ids.here("b", "variablesReference", 7)
    body = {"variables": [{"name": "x", "variablesReference": 7}, {"name": "y", "variablesReference": 0}], "id": 7}
    mine = ids.here("a", "variablesReference", 7)
    assert mine != seven
    assert ids.outward("a", body) == {
        "variables": [{"name": "x", "variablesReference": mine}, {"name": "y", "variablesReference": 0}],
        "id": 7,
    }
    source = ids.outward("a", {"source": {"path": "<string>", "sourceReference": 3}})["source"]["sourceReference"]
    assert ids.there(source, "sourceReference") == ("a", 3)


def test_what_is_over_is_nobodys_and_its_number_is_not_used_again() -> None:
    ids: Ids[str] = Ids()
    frame, thread, other = ids.here("a", "frameId", 1), ids.here("a", "threadId", 1), ids.here("b", "frameId", 1)
    ids.forget("a", "frameId")
    assert (ids.there(frame, "frameId"), ids.there(thread, "threadId")) == (None, ("a", 1))
    assert ids.there(other, "frameId") == ("b", 1)
    assert ids.here("a", "frameId", 1) not in (frame, thread, other)
    ids.forget("a")
    assert ids.there(thread, "threadId") is None
