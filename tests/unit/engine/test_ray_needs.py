"""What hosts need of a Ray cluster, and what of that it does not have."""

from __future__ import annotations

import pytest

from meshrt.engine.ray_needs import Node, Resources, bundle_of, hosts_of, missing
from meshrt.errors import SpawnError
from meshrt.mesh.engine import Request


def node(total: Resources, free: Resources | None = None) -> Node:
    return Node("0" * 56, "n", total, total if free is None else free)


GPUS = [node({"CPU": 16, "GPU": 8})] * 4


def test_a_host_needs_a_cpu_for_each_rank_and_the_gpus_that_are_asked_for() -> None:
    assert bundle_of(Request(4, 32, 8), 4, {}, GPUS) == {"CPU": 8, "GPU": 8}
    assert bundle_of(Request(4, 64, 8), 4, {}, GPUS) == {"CPU": 16, "GPU": 8}
    assert bundle_of(Request(4, 32), 4, {}, GPUS) == {"CPU": 8}


def test_gpus_is_a_dimension_where_there_are_none() -> None:
    assert bundle_of(Request(4, 32, 8), 4, {}, [node({"CPU": 16})]) == {"CPU": 8}


def test_what_is_given_replaces_and_adds() -> None:
    assert bundle_of(Request(4, 32, 8), 4, {"CPU": 1, "GPU": 0, "TPU": 4}, GPUS) == {"CPU": 1, "TPU": 4}


def test_a_mesh_without_hosts_has_as_few_as_it_needs() -> None:
    assert hosts_of(Request(3, 3), {}, []) == 3
    assert hosts_of(Request(None, 8, 8), {}, GPUS) == 1
    assert hosts_of(Request(None, 32, 32), {}, GPUS) == 4
    assert hosts_of(Request(None, 32), {}, GPUS) == 2
    assert hosts_of(Request(None, 24), {"CPU": 0, "GPU": 6}, GPUS) == 1
    with pytest.raises(SpawnError, match="no node of the Ray cluster can run a share of 6 ranks"):
        hosts_of(Request(None, 6), {"TPU": 1}, GPUS)


def test_a_resource_that_others_use() -> None:
    nodes = [*GPUS[:2], *[node({"CPU": 16, "GPU": 8}, {"CPU": 16, "GPU": 2})] * 2]
    assert missing({"CPU": 8, "GPU": 8}, 4, "STRICT_SPREAD", nodes) == ["GPU 8 is free for 2 of 4 hosts"]
    assert missing({"CPU": 8, "GPU": 8}, 2, "STRICT_SPREAD", nodes) == []


def test_a_resource_that_the_cluster_does_not_have() -> None:
    assert missing({"CPU": 8, "TPU": 1}, 5, "STRICT_SPREAD", GPUS) == [
        "CPU 8 is free for 4 of 5 hosts; with nothing else running, for 4",
        "TPU 1 is free for 0 of 5 hosts; with nothing else running, for 0",
    ]


def test_the_strategy_says_where_there_is_room() -> None:
    assert missing({"CPU": 8}, 8, "PACK", GPUS) == []
    assert missing({"CPU": 8}, 8, "STRICT_PACK", GPUS)[0].startswith("CPU 8 is free for 2 of 8 hosts")


def test_resources_that_are_free_on_different_nodes() -> None:
    nodes = [node({"CPU": 8, "GPU": 8}, {"CPU": 8}), node({"CPU": 8, "GPU": 8}, {"GPU": 8})]
    assert missing({"CPU": 8, "GPU": 8}, 1, "PACK", nodes) == [
        "all these resources on one node are free for 0 of 1 host"
    ]
