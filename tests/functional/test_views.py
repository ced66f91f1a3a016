"""Every mesh can be sliced, split, flattened, renamed and selected from; a call goes to exactly those ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meshrt import Extent, MeshTrait, SelectionError, ValueMesh, proc_mesh, this_host
from meshrt.selection import Shape
from tests.support.actors import Echo

pytestmark = pytest.mark.one_program

View = Callable[[Any], Any]

#: On ``{hosts: 2, gpus: 4}``: how a view is made, its sizes, and the base ranks that it holds.
VIEWS: list[tuple[str, View, dict[str, int], list[int]]] = [
    ("whole", lambda m: m.slice(), {"hosts": 2, "gpus": 4}, list(range(8))),
    ("row", lambda m: m.slice(hosts=1), {"gpus": 4}, [4, 5, 6, 7]),
    ("column", lambda m: m.slice(gpus=2), {"hosts": 2}, [2, 6]),
    ("point", lambda m: m.slice(gpus=3, hosts=1), {}, [7]),
    ("range", lambda m: m.slice(gpus=slice(1, 3)), {"hosts": 2, "gpus": 2}, [1, 2, 5, 6]),
    ("step", lambda m: m.slice(gpus=slice(None, None, 2)), {"hosts": 2, "gpus": 2}, [0, 2, 4, 6]),
    ("uneven step", lambda m: m.slice(gpus=slice(0, 4, 3)), {"hosts": 2, "gpus": 2}, [0, 3, 4, 7]),
    ("from the end", lambda m: m.slice(gpus=slice(-2, None)), {"hosts": 2, "gpus": 2}, [2, 3, 6, 7]),
    ("split", lambda m: m.split(gpus=("tp", "cp"), cp=2), {"hosts": 2, "tp": 2, "cp": 2}, list(range(8))),
    ("part of a split", lambda m: m.split(gpus=("tp", "cp"), cp=2).slice(cp=1), {"hosts": 2, "tp": 2}, [1, 3, 5, 7]),
    ("flat", lambda m: m.flatten("rank"), {"rank": 8}, list(range(8))),
    ("flat row", lambda m: m.slice(hosts=1).flatten("r"), {"r": 4}, [4, 5, 6, 7]),
    ("renamed", lambda m: m.rename(hosts="dp", gpus="tp"), {"dp": 2, "tp": 4}, list(range(8))),
    ("swapped", lambda m: m.rename(hosts="gpus", gpus="hosts"), {"gpus": 2, "hosts": 4}, list(range(8))),
    ("selected", lambda m: m.select("hosts=1, gpus=1:3"), {"gpus": 2}, [5, 6]),
    ("selected ranks", lambda m: m.select("ranks(1:8:3)"), {"ranks": 3}, [1, 4, 7]),
]
NAMES = [name for name, *_ in VIEWS]


def test_views_on_actor_meshes_reach_exactly_their_ranks() -> None:
    mesh = proc_mesh(hosts=2, gpus=4)
    echo = mesh.spawn("echo", Echo)
    pids = echo.pid.call().get(20).values()
    for name, view, sizes, ranks in VIEWS:
        part = view(echo)
        assert type(part) is type(echo) and isinstance(part, MeshTrait)
        assert (part.sizes, part.size(), len(part)) == (sizes, len(ranks), len(ranks)), name
        answer = part.pid.call().get(20)
        assert answer.sizes == sizes, name
        assert answer.values() == [pids[rank] for rank in ranks], name
        # Inside, each rank sees its place in the view, row-major.
        points = [point for point, _, _ in part.where.call().get(20).values()]
        assert points == [dict(part.extent.point(rank)) for rank in range(len(ranks))], name


def test_views_on_proc_meshes_spawn_on_exactly_their_ranks() -> None:
    mesh = proc_mesh(hosts=2, gpus=4)
    pids = mesh.spawn("all", Echo).pid.call().get(20).values()
    for index, (name, view, sizes, ranks) in enumerate(VIEWS):
        part = view(mesh)
        assert (type(part), part.sizes) == (type(mesh), sizes), name
        answer = part.spawn(f"echo{index}", Echo).pid.call().get(20)
        assert answer.values() == [pids[rank] for rank in ranks], name


@pytest.mark.parametrize("name", NAMES)
def test_views_on_value_meshes_hold_exactly_their_values(name: str) -> None:
    _, view, sizes, ranks = VIEWS[NAMES.index(name)]
    shape = Shape.from_extent(Extent(("hosts", "gpus"), (2, 4)))
    values = ValueMesh(shape, [f"v{rank}" for rank in range(8)])
    part = view(values)
    assert (type(part), part.sizes) == (ValueMesh, sizes)
    assert part.values() == [f"v{rank}" for rank in ranks]


def test_the_same_errors_on_every_mesh() -> None:
    mesh = proc_mesh(hosts=2, gpus=2)
    echo = mesh.spawn("echo", Echo)
    answer = echo.rank.call().get(20)
    meshes: list[MeshTrait] = [mesh, echo, answer]
    for each in meshes:
        with pytest.raises(IndexError, match=r"gpus=2, but gpus has size 2"):
            each.slice(gpus=2)
        with pytest.raises(TypeError, match="does not have dimension labeled 'foo'"):
            each.slice(foo=0)
        with pytest.raises(ValueError, match="is not evenly divided by"):
            each.split(gpus=("a", "b"), a=3)
        with pytest.raises(ValueError, match="cannot flatten sparse mesh"):
            each.slice(gpus=1).flatten("r")
        with pytest.raises(SelectionError, match=r"\^"):
            each.select("gpus=5")
        with pytest.raises(KeyError):
            each.size("foo")


def test_this_host_is_a_mesh_too() -> None:
    assert this_host().slice().sizes == {} and this_host().extent.nelements == 1
    with pytest.raises(TypeError, match="'hosts'"):
        this_host().slice(hosts=0)


def test_values_of_a_call_are_a_value_mesh_that_a_person_can_read() -> None:
    echo = proc_mesh(hosts=2, gpus=4).spawn("echo", Echo)
    same = echo.echo.call("ready").get(20)
    assert repr(same) == "ValueMesh{hosts=2,gpus=4}:\n  [0-7] 'ready'"
    ranks = echo.slice(gpus=slice(0, 2)).rank.call().get(20)
    assert repr(ranks) == "ValueMesh{hosts=2,gpus=2}:\n  [0] 0\n  [1] 1\n  [2] 2\n  [3] 3"
    assert ranks.item(hosts=1, gpus=0) == 2 and ranks.slice(hosts=1).values() == [2, 3] and len(ranks) == 4
