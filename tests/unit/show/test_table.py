"""Tables on a narrow terminal: they fit, what tells least goes first, and it is said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshrt.debug.prompt.tables import listing
from meshrt.inspect.operations import RankRow
from meshrt.show.table import Room, columns, fitted, table

HEADS = ("NAME", "FREE", "HOST", "STATE")
ROWS = [("trainer", "1.8 MiB", "node1", "blocked (at train.py:88)"), ("store", "7.5 MiB", "node2", "running")]


def width(heads: list[str], rows: list[list[str]], gap: int = 2) -> int:
    """As tabulate sets it, which keeps two characters free beside a head."""
    padded = [f"{head}  " for head in heads]
    cells = ([len(line) for cell in column for line in cell.split("\n")] for column in zip(padded, *rows, strict=True))
    return sum(map(max, cells)) + gap * (len(heads) - 1)


def test_everything_where_there_is_room_or_no_terminal() -> None:
    for each in (None, 200):
        assert fitted(HEADS, ROWS, Room(each, ("FREE",), {"STATE": 8})) == (list(HEADS), [list(r) for r in ROWS], "")
    assert columns() is None or columns(wide=True) is None  # tests have no terminal, or do not want its width


def test_texts_are_wrapped_before_columns_go() -> None:
    heads, rows, note = fitted(HEADS, ROWS, Room(40, ("FREE", "HOST"), {"STATE": 8}))
    assert (heads, note) == (list(HEADS), "") and width(heads, rows) == 38
    assert [row[3] for row in rows] == ["blocked (at\ntrain.py:88)", "running"]
    heads, rows, note = fitted(HEADS, ROWS, Room(32, ("FREE", "HOST"), {"STATE": 8}))
    assert heads == ["NAME", "HOST", "STATE"] and width(heads, rows) == 29
    assert note == "left out, as the terminal is narrow: FREE (--wide)"
    assert rows[0][2] == "blocked (at\ntrain.py:88)"
    assert table(HEADS, ROWS, Room(32, ("FREE", "HOST"), {"STATE": 8}))[-2:] == [
        "left out, as the terminal is", "  narrow: FREE (--wide)",
    ]  # fmt: skip


@given(st.integers(10, 70), st.lists(st.tuples(*[st.text("ab", max_size=30)] * 4), min_size=1, max_size=3))
def test_it_fits_if_it_can(limit: int, rows: list[tuple[str, ...]]) -> None:
    room = Room(limit, HEADS[1:], dict.fromkeys(HEADS, 4))
    heads, found, note = fitted(HEADS, rows, room)
    assert width(heads, found) <= limit
    assert heads[0] == "NAME" and bool(note) == (len(heads) < 4)
    assert all(head in heads or head in note for head in HEADS)


def test_the_listing_of_ranks_fits() -> None:
    row = RankRow(
        "trainer", "m", 0, {"hosts": 0, "gpus": 0}, [["hosts"], 0, [1], [1]], "a-host-with-a-name", 4711, "step",
        "/home/you/a_long_module.py", 88, "a_function_with_a_name", "", "blocked", "", 1.0, 0, "", 0, 1 << 30,
    )  # fmt: skip
    whole = listing([row], state="all")
    narrow = listing([row], state="all", width=80)
    assert max(map(len, whole.splitlines())) > 80 >= max(map(len, narrow.splitlines()))
    assert "a-host-with-a-name" in whole and "Hostname, Coords, PID (--wide)" in narrow.splitlines()[-1]
