"""The table of breakpoints in the root: what ranks of several meshes answer."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.debug.operations import Breaks
from meshrt.debug.prompt.tables import breakpoints
from meshrt.errors import UsageError
from meshrt.hooks.facts import Gathered
from meshrt.selection import Shape, Slice
from tests.support.untyped import Group
from tests.unit.debug.root_fakes import FakeRoot, MeshOfFake


class Answering(FakeRoot):
    """A root whose ranks answer every question at once."""

    def __init__(self, *meshes: MeshOfFake, answers: dict[str, list[Group]]):
        self.answers = answers
        super().__init__(*meshes)

    def gather(self, targets: Any, operation: Any, seconds: float, report: Any, **options: Any) -> int:
        groups = [operation.read_group(*group) for group in self.answers[operation.name()] if group.mesh_id in targets]
        report(Gathered(groups, True))
        return 0


def test_breakpoints_are_told_of_ranks_with_their_mesh() -> None:
    silent = {"state": "busy", "stack": ""}
    root = Answering(
        ("m1", "left", {"n": 4}, ("debugee",)),
        ("m2", "", {"n": 4}, ("other",)),
        answers={
            "debug.breaks": [Group(mesh, (0, 1), "answered", {"breaks": [[1, "bound", 0, ""]], "price": ""}, {})
                             for mesh in ("m1", "m2")],
            "debug.hits": [
                Group("m1", (0, 1), "answered",
                      {"breaks": [[1, 2, 4, "raised", False, False]]}, {}),
                Group("m2", (1, 2), "answered", {"breaks": [[1, 2, 5, "", False, False]]}, {}),
                Group("m1", (2, 3), "silent", silent, {}),
                Group("m2", (0, 3), "silent", silent, {}),
            ],
            "debug.postmortem": [
                Group("m1", (0, 1, 2), "answered", {"own": "on"}, {}),
                Group("m1", (3,), "silent", silent, {}),
                Group("m2", (0, 1, 2, 3), "silent", silent, {}),
            ],
        },
    )  # fmt: skip
    me = root.terminal()
    assert root.ask(me, "debug.break", place="a.py:3")["states"] == {"bound": {"m1": [0, 1], "m2": [0, 1]}}
    shown = root.ask(me, "debug.breaks")
    assert shown["breaks"][0]["hits"] == {"2": {"m1": [0, 1], "m2": [1, 2]}}
    assert shown["breaks"][0]["lines"] == {"4": {"m1": [0, 1]}, "5": {"m2": [1, 2]}}
    typed = Breaks.read_answer(shown)
    assert breakpoints(typed.breaks, typed.meshes).splitlines() == [
        "1  a.py:3 (no code at that line: it is set at line 4 on left 0-1, line 5 on m2 1-2) on all: "
        "hit [left 0-1, m2 1-2] 2 times",
        "   [left 0-1] raised",
    ]
    assert shown["problems"] == {"C code holds its GIL": {"m1": [2, 3], "m2": [0, 3]}}
    told = root.ask(me, "debug.postmortem")
    assert told["own"] == {"on": {"m1": [0, 1, 2]}}
    assert told["problems"] == {"C code holds its GIL": {"m1": [3], "m2": [0, 1, 2, 3]}}


def test_what_was_set_in_the_console_of_an_ide_goes_with_it() -> None:
    root = Answering(
        ("m1", "", {"n": 2}, ("debugee",)),
        answers={
            "debug.breaks": [
                Group("m1", (0, 1), "answered", {"breaks": [[1, "bound", 0, ""], [2, "bound", 0, ""]], "price": ""}, {})
            ],
            "debug.hits": [
                Group(
                    "m1", (0, 1), "answered", {"breaks": [[1, 0, 0, "", True, False], [2, 0, 0, "", False, True]]}, {}
                )
            ],
        },
    )
    ide, person = root.terminal(), root.terminal()

    def shown() -> list[tuple[int, int]]:
        return [(row["id"], row["goes_with"]) for row in root.ask(person, "debug.breaks")["breaks"]]

    assert root.ask(ide, "debug.break", place="a.py:3", goes=1)["goes_with"] == ide.pid
    root.ask(person, "debug.break", place="a.py:4")
    assert shown() == [(1, ide.pid), (2, 0)]
    rows = root.ask(person, "debug.breaks")["breaks"]
    assert [(row["left"], row["pending"]) for row in rows] == [({"m1": [0, 1]}, {}), ({}, {"m1": [0, 1]})]
    root.leave(person)
    assert len(shown()) == 2
    root.leave(ide)
    assert shown() == [(2, 0)]


def test_a_refused_breakpoint_uses_up_no_number() -> None:
    def answers(state: str) -> dict[str, list[Group]]:
        breaks = [[number, state, 0, ""] for number in (1, 2)]
        return {"debug.breaks": [Group("m1", (0, 1), "answered", {"breaks": breaks, "price": ""}, {})]}

    root = Answering(("m1", "", {"n": 2}, ("debugee",)), answers=answers("no code at line 3"))
    ide, person = root.terminal(), root.terminal()
    with pytest.raises(UsageError, match="no code at line 3"):
        root.ask(ide, "debug.break", place="a.py:3", goes=1)
    root.answers = {**answers("bound"), "debug.hits": []}
    assert [root.ask(person, "debug.break", place=f"a.py:{line}")["id"] for line in (4, 5)] == [1, 2]
    root.leave(ide)  # its breakpoint was refused: it takes none along
    assert [row["id"] for row in root.ask(person, "debug.breaks")["breaks"]] == [1, 2]


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        ("loss !=", "invalid condition: invalid syntax\n  loss !=\n         ^"),
        ("(" * 1000, "invalid condition: "),
    ],
)
def test_an_invalid_condition_is_refused_before_any_rank_is_asked(condition: str, why: str) -> None:
    root = Answering(("m1", "", {"n": 2}, ("debugee",)), answers={})
    with pytest.raises(UsageError) as caught:
        root.ask(root.terminal(), "debug.break", place="a.py:3", condition=condition)
    assert str(caught.value).startswith(why)


def test_nothing_is_pending_where_the_actor_does_not_live() -> None:
    head = Shape(("n",), Slice(offset=1, sizes=(2,), strides=(2,)))
    pending = {"breaks": [[1, "pending", 0, ""]], "price": ""}
    root = Answering(
        ("m1", "", {"n": 4}, {"debugee": head}),
        answers={
            "debug.breaks": [
                Group("m1", (0, 2, 3), "answered", pending, {}),
                Group("m1", (1,), "answered", {"breaks": [[1, "bound", 0, ""]], "price": ""}, {}),
            ]
        },
    )
    found = root.ask(root.terminal(), "debug.break", place="debugee.work")
    assert found["states"] == {"pending": {"m1": [3]}, "bound": {"m1": [1]}}
