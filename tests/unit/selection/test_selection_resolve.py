"""From selections to base ranks, against an oracle that asks each rank in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshrt.errors import SelectionError
from meshrt.selection import STATE_WORDS, MeshTrait, Selection, Shape, check_numbers, dimensions_of, parse, resolve
from meshrt.selection.grammar.ast import All, And, Dim, Group, Index, Item, Node, Not, Or, Place, RankSet, State
from meshrt.selection.views import rename_shape, slice_shape
from tests.strategies import selections, shapes, views

__all__: list[str] = []

MESH = Shape.from_extent({"hosts": 2, "gpus": 4})


class Facts:
    """States and places from the rank alone, other ranks included."""

    def in_state(self, word: str) -> Iterable[int]:
        return (rank for rank in range(1000) if rank % 5 == STATE_WORDS.index(word))

    def groups(self) -> dict[str, list[int]]:
        names = ("dp", "expert-group", "in", "group_3", "all")
        return {name: [rank for rank in range(1000) if rank % 3 != index % 3] for index, name in enumerate(names)}

    def at(self, file: str, line: int) -> Iterable[int]:
        return [rank for rank in range(1000) if (rank + len(file)) % 3 == line % 3]


def placed(shape: Shape) -> dict[int, dict[str, int]]:
    """Base rank to coordinates, from the definition of a strided slice."""
    ndslice = shape.ndslice
    return {
        ndslice.offset + sum(c * s for c, s in zip(cell, ndslice.strides, strict=True)): dict(
            zip(shape.labels, cell, strict=True)
        )
        for cell in itertools.product(*(range(size) for size in ndslice.sizes))
    }


def among(items: Sequence[Item], index: int, size: int) -> bool:
    for item in items:
        if isinstance(item, Index):
            if index == item.value or index == item.value + size:
                return True
        elif index in list(range(size))[item.start : item.stop : item.step]:
            return True
    return False


def holds(node: Node, rank: int, coordinates: dict[str, int], sizes: dict[str, int], position: int, count: int) -> bool:
    """Whether ``rank`` belongs to ``node``: one rank at a time, on explicit coordinates."""

    def inner(operand: Node) -> bool:
        return holds(operand, rank, coordinates, sizes, position, count)

    match node:
        case All():
            return True
        case RankSet(items):
            return among(items, position, count)
        case Dim(name, items):
            return among(items, coordinates[name], sizes[name])
        case State(word):
            return rank in set(Facts().in_state(word))
        case Place(file, line):
            return rank in Facts().at(file, line)
        case Group(name):
            return rank in Facts().groups()[name]
        case Not(operand):
            return not inner(operand)
        case And(operands):
            return all(map(inner, operands))
        case Or(operands):
            return any(map(inner, operands))


def oracle(selection: Selection, view: Shape, whole: Shape) -> tuple[int, ...]:
    everywhere, here = placed(whole), placed(view)
    order = list(everywhere)
    sizes = {**dict(whole.extent), **dict(view.extent)}
    return tuple(
        sorted(
            rank
            for rank in here
            if holds(selection.expr, rank, everywhere[rank] | here[rank], sizes, order.index(rank), len(order))
        )
    )


@pytest.mark.slow
@given(st.data())
def test_against_the_oracle(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    selection = data.draw(selections(shape))
    expected = oracle(selection, shape, shape)
    assert resolve(selection, shape, facts=Facts(), allow_empty=True) == expected
    if not expected:
        with pytest.raises(SelectionError, match="selects no rank"):
            resolve(selection, shape, facts=Facts())


@pytest.mark.slow
@given(st.data())
def test_views_against_the_oracle(data: st.DataObject) -> None:
    whole = data.draw(shapes())
    view = data.draw(views(whole))
    # Some dims of the view have new names; the old ones still mean what they mean in the whole mesh.
    renamed = data.draw(st.lists(st.sampled_from(view.labels), unique=True)) if view.labels else []
    view = rename_shape(view, {label: label + "_new" for label in renamed})
    selection = data.draw(selections(whole, numbers=len(whole)) | selections(view, numbers=len(whole)))
    in_view = {label for label in whole.labels if label in view.labels}
    assume(all(whole.extent[label] == view.extent[label] for label in in_view))
    expected = oracle(selection, view, whole)
    assert resolve(selection, view, numbering=whole, facts=Facts(), allow_empty=True) == expected


def ranks_of(text: str, shape: Shape = MESH, numbering: Shape | None = None) -> tuple[int, ...]:
    return resolve(parse(text), shape, numbering=numbering)


def test_numbers_are_positions_in_the_shape_or_in_the_numbering() -> None:
    view = slice_shape(MESH, {"hosts": 1, "gpus": slice(1, None)})  # ranks 5, 6, 7
    assert ranks_of("0", view) == (5,)
    assert ranks_of("-1", view) == (7,)
    assert ranks_of("5", view, MESH) == (5,)
    assert ranks_of("0:6", view, MESH) == (5,)
    assert ranks_of("!5", view, MESH) == (6, 7)
    assert ranks_of("all", view, MESH) == (5, 6, 7)


def test_dims_of_the_numbering_work_on_a_view() -> None:
    view = rename_shape(slice_shape(MESH, {"gpus": slice(1, 3)}), {"hosts": "dp"})  # ranks 1, 2, 5, 6
    assert ranks_of("dp=1", view, MESH) == ranks_of("hosts=1", view, MESH) == (5, 6)
    assert ranks_of("gpus=0", view, MESH) == (1, 5), "a dim of the view means the view's"
    one = slice_shape(MESH, {"gpus": 3})
    assert ranks_of("gpus=3", one, MESH) == (3, 7)
    with pytest.raises(SelectionError, match="does not contain 2,6"):
        ranks_of("gpus=2", one, MESH)


def test_duplicates_count_once_and_order_is_ascending() -> None:
    assert ranks_of("5,1,5,0:3") == (0, 1, 2, 5)


def test_a_view_of_another_mesh_name_space_is_confined() -> None:
    with pytest.raises(SelectionError, match=r"this selects no rank: {gpus=4} does not contain 1"):
        ranks_of("1", MESH.at("hosts", 1), MESH)
    with pytest.raises(SelectionError, match=r"this selects no rank of {gpus=4}"):
        ranks_of("!all", MESH.at("hosts", 1), MESH)


# Each row: the text, where the caret points, the problem, a part of what is expected.
ERRORS = [
    ("in dp", "in dp", "which ranks are in dp is not known here", "rank numbers"),
    ("ranks(8)", "8", "rank 8 does not exist: there are 8 ranks", "0 to 7"),
    ("ranks(1, -9)", "-9", "rank -9 does not exist", "-8 to -1"),
    ("hosts=2", "2", "hosts=2 does not exist: hosts has size 2", "0 to 1"),
    ("gpus=(0,-5)", "-5", "gpus=-5 does not exist: gpus has size 4", "0 to 3"),
    ("hots=1", "hots", "no dimension 'hots' in {hosts=2,gpus=4}; did you mean 'hosts'?", "gpus (size 4)"),
    ("zz=1", "zz", "no dimension 'zz' in {hosts=2,gpus=4}", "hosts (size 2)"),
    ("hosts=1 & stopped", "stopped", "which ranks are 'stopped' is not known here", "rank numbers"),
    ("at a.py:3 | 1", "at a.py:3", "which ranks are at a.py:3 is not known here", "rank numbers"),
    ("hosts=0, hosts=1", "hosts=0, hosts=1", "this selects no rank of {hosts=2,gpus=4}", ""),
    ("5:2", "5:2", "this selects no rank of {hosts=2,gpus=4}", ""),
    ("gpus=9:", "gpus=9:", "this selects no rank of {hosts=2,gpus=4}", ""),
    ("!all", "!all", "this selects no rank of {hosts=2,gpus=4}", ""),
]


@pytest.mark.parametrize(("text", "pointed", "problem", "expected"), ERRORS)
def test_errors(text: str, pointed: str, problem: str, expected: str) -> None:
    with pytest.raises(SelectionError) as caught:
        ranks_of(text)
    assert problem in caught.value.problem
    assert text[slice(*caught.value.span)] == pointed
    assert any(expected in word for word in caught.value.expected or [""])


def test_an_unknown_group_is_told_those_that_there_are() -> None:
    with pytest.raises(SelectionError, match="no process group 'expert-grou'; did you mean 'expert-group'") as caught:
        resolve(parse("!in expert-grou"), MESH, facts=Facts())
    assert caught.value.span == (1, 15) and "expert-group" in caught.value.expected


def test_an_error_counts_even_where_the_rest_would_decide() -> None:
    for text in ("all | hosts=7", "!all & hosts=7", "1:1, 99"):
        with pytest.raises(SelectionError, match="does not exist"):
            ranks_of(text)


def test_no_dimensions_at_all() -> None:
    unity = Shape.unity()
    assert ranks_of("all", unity) == ranks_of("0", unity) == (0,)
    with pytest.raises(SelectionError, match="a rank number"):
        ranks_of("hosts=0", unity)


def test_facts_about_other_meshes_do_no_harm() -> None:
    assert resolve(parse("running"), MESH, facts=Facts()) == (0, 5)


def test_dims_go_through_the_code_that_slices_meshes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def spy(shape: Shape, selectors: dict[str, object]) -> Shape:
        asked.append(selectors)
        return slice_shape(shape, selectors)

    monkeypatch.setattr("meshrt.selection.grammar.resolver.slice_shape", spy)
    assert ranks_of("hosts=1, gpus=-1") == (7,)
    assert asked == [{"hosts": 1}, {"gpus": 3}]
    assert MeshTrait.slice.__module__ == "meshrt.selection.trait"


@pytest.mark.parametrize(
    ("text", "dimensions"),
    [
        ("0:4, 9", []), ("hosts=0", ["hosts"]), ("!(all & stopped)", []),
        ("at a.py:41 | gpus=1 & hosts=0", ["gpus", "hosts"]),
    ],
)  # fmt: skip
def test_what_a_selection_depends_on(text: str, dimensions: list[str]) -> None:
    assert sorted(dimensions_of(parse(text))) == dimensions


@pytest.mark.parametrize("text", ["0", "0:8", "hosts=1", "0, 2:8", "!(0, 4) | stopped", "-4"])
def test_numbers_of_members_are_accepted(text: str) -> None:
    check_numbers(parse(text), MESH, {0, 4}, "head, which is on ranks 0,4")


@pytest.mark.parametrize(
    ("text", "rank", "span"), [("ranks(0, 3)", 3, (9, 10)), ("!(-1)", 7, (2, 4)), ("hosts=0 | 1", 1, (10, 11))]
)
def test_the_number_of_another_rank_is_refused(text: str, rank: int, span: tuple[int, int]) -> None:
    with pytest.raises(SelectionError, match=f"^rank {rank} is not a rank of head, which is on ranks 0,4") as caught:
        check_numbers(parse(text), MESH, {0, 4}, "head, which is on ranks 0,4")
    assert caught.value.span == span
