"""Hosts as a mesh: which ranks stand for them, slices, and what they spawn."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from meshrt import HostMesh
from meshrt.errors import UsageError
from meshrt.mesh.hosts import Hosts, first_ranks
from meshrt.mesh.spec import MeshSpec
from meshrt.selection import Shape
from meshrt.wire.addresses import HostAddress, MeshAddress

ADDRESS = MeshAddress(tuple(HostAddress(number, number, b"/d", (("n", number),)) for number in (1, 2, 3)), 12)


class Spawned(list[tuple[MeshSpec, Hosts]]):
    def __call__(self, spec: MeshSpec, hosts: Hosts) -> Any:
        self.append((spec, hosts))


def hosts(spawned: Spawned) -> HostMesh:
    shape = Shape.from_extent({"hosts": 4, "gpus": 2}).at("gpus", 0)
    return HostMesh(spawned, shape, Hosts(mesh_id="m"), ("n1", "n2", "n3", "n4"))


def test_the_dimension_hosts_says_which_ranks_are_on_one() -> None:
    shape = Shape.from_extent({"dp": 2, "hosts": 2, "gpus": 3})
    found = first_ranks(shape, ADDRESS.host_of)
    assert (found.labels, found.ranks()) == (("hosts",), [0, 3])


@pytest.mark.parametrize(("low", "high", "expected"), [(0, 12, [0, 4, 8]), (4, 12, [4, 8]), (4, 8, [4]), (7, 8, [7])])
def test_without_it_there_is_one_for_each_agent(low: int, high: int, expected: list[int]) -> None:
    found = first_ranks(Shape.from_extent({"n": 12}).select("n", slice(low, high)), ADDRESS.host_of)
    assert found.ranks() == expected and found.labels == (("hosts",) if len(expected) > 1 else ())


def test_a_view_whose_hosts_are_not_evenly_spaced_has_none() -> None:
    with pytest.raises(UsageError, match="10 ranks on 3 hosts are not spread evenly"):
        first_ranks(Shape.from_extent({"n": 12}).select("n", slice(2, 12)), ADDRESS.host_of)


def test_a_slice_knows_its_names_and_spawns_on_its_hosts() -> None:
    spawned = Spawned()
    some = hosts(spawned).slice(hosts=slice(1, 3))
    assert some.names == ("n2", "n3") and repr(some) == "<HostMesh n2, n3 (hosts=2)>"
    some.spawn_procs({"gpus": 3}, name="mesh")
    ((spec, chosen),) = spawned
    assert dict(spec.extent.items()) == {"hosts": 2, "gpus": 3} and chosen == Hosts(mesh_id="m", members=(2, 4))
    with pytest.raises(UsageError, match="hosts is a dimension of the hosts already"):
        some.spawn_procs({"hosts": 2})


def test_hosts_of_a_mesh_can_be_sent_and_those_of_an_engine_cannot() -> None:
    again = pickle.loads(pickle.dumps(hosts(Spawned()).slice(hosts=2)))
    assert isinstance(again, HostMesh) and again.names == ("n3",) and again.sizes == {}
    with pytest.raises(TypeError, match="hosts of an engine cannot be sent; send the hosts of a mesh"):
        pickle.dumps(HostMesh(Spawned(), Shape.unity(), Hosts()))
