from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.dap.router.ranks import Names, Rank
from meshrt.debug.dap.router.rows import RUNNING, Place, Rows

TRAIN: Place = (("/src/main.py", 3, "main"), ("/src/train.py", 9, "step"))
LOAD: Place = (("/src/main.py", 3, "main"), ("/src/load.py", 5, "next"))
PLACES = st.sampled_from([RUNNING, TRAIN, LOAD])
KEYS = st.tuples(st.sampled_from(["m1", "m2"]), st.integers(0, 9))


def test_a_row_for_each_class() -> None:
    rows = Rows(Names(), 1)
    shown = rows.sort({("m1", rank): LOAD if rank == 2 else RUNNING if rank > 5 else TRAIN for rank in range(40)})
    assert [row.name for row in shown] == [
        "5 ranks 0-1,3-5 at train.py:9 (step)",
        "rank 2 at load.py:5 (next)",
        "34 ranks 6-39 running",
    ]
    # A row keeps its number as long as its class has ranks.
    again = rows.sort({("m1", rank): LOAD if rank == 2 else TRAIN for rank in range(40)})
    assert [row.number for row in again] == [shown[0].number, shown[1].number]
    assert again[0].members == tuple(("m1", rank) for rank in range(40) if rank != 2)
    assert rows.sort({("m1", 0): RUNNING})[0].number not in {row.number for row in shown}


def test_ranks_of_two_meshes_are_told_apart() -> None:
    names = Names()
    for mesh, called in (("m1", "trainers"), ("m2", "")):
        names.meet(Rank(mesh, 0, "rank 0", 1, "host", mesh_name=called))
    shown = Rows(names, 7).sort({("m1", 0): TRAIN, ("m1", 1): TRAIN, ("m2", 0): TRAIN})
    assert [row.name for row in shown] == [
        "trainers 2 ranks 0-1 at train.py:9 (step)",
        "m2 rank 0 at train.py:9 (step)",
    ]
    assert [row.number for row in shown] == [7, 8]
    everyone = [("m2", 4), ("m1", 0), ("m1", 1), ("m2", 5), ("m1", 7)]
    assert names.of(everyone) == "trainers ranks 0-1,7, m2 ranks 4-5"
    names.meet(Rank("m3", 0, "rank 0", 1, "host", mesh_name="trainers"))
    assert names.of([("m1", 0), ("m1", 1), ("m3", 0)]) == "m1 ranks 0-1, m3 rank 0", "a name that two have is none"
    names = Names()
    for mesh in ("m1", "m2"):
        names.meet(Rank(mesh, 0, "rank 0", 1, "host", mesh_name={"m1": "trainers"}.get(mesh, "")))
    assert names.numbers(everyone[:2]) == "trainers 0, m2 4" and names.of([("m1", 3)]) == "trainers rank 3"


@given(st.lists(st.dictionaries(KEYS, PLACES), max_size=4))
def test_every_rank_is_in_one_row(looks: list[dict[tuple[str, int], Place]]) -> None:
    rows = Rows(Names(), 1)
    for places in looks:
        shown = rows.sort(places)
        assert sorted(key for row in shown for key in row.members) == sorted(places)
        assert len({row.number for row in shown}) == len(shown)
        for row in shown:
            assert {places[key] for key in row.members} == {row.place}
