"""How a device mesh of a real torch names the dimensions and groups of ranks: each process is one of eight, alone."""

from __future__ import annotations

import importlib.util
import json

import pytest

from tests.support.programs import run_python

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

PROGRAM = """\
import json, time
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from meshrt.collectives.reports import DeviceMeshes
from meshrt.collectives.torch_groups import read_world

meshes = DeviceMeshes()

def look():
    # A look rests for a hundred times as long as the last one took.
    meshes._again = 0.0
    return meshes.look()

def groups():
    return {group.name: group.ranks for group in read_world([], numbers=False).groups}

def made(shape, names, rank=3):
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=8)
    assert look() is None, "of the world before"
    kept = init_device_mesh("cpu", shape, mesh_dim_names=names)
    found = look()
    told = found and dict(found.sizes), groups()
    dist.destroy_process_group()
    del kept
    return told

def others():
    dist.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    part = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("node", "gpu"))
    turned = DeviceMesh("cpu", [[0, 2, 4, 6], [1, 3, 5, 7]], mesh_dim_names=("a", "b"))
    unnamed = init_device_mesh("cpu", (8,))
    odd = init_device_mesh("cpu", (8,), mesh_dim_names=("a b",))
    assert look() is None
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    flat, slice = mesh._flatten("world"), mesh["tp"]
    found = look()
    later = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("x", "y", "z"))
    assert look() is found
    return dict(found.sizes)

assert meshes.look() is None
"""


def said(code: str) -> object:
    done = run_python("-c", f"{PROGRAM}print(json.dumps({code}))", seconds=90)
    assert done.returncode == 0
    return json.loads(done.stdout)


@pytest.mark.slow
def test_each_dimension_names_its_group() -> None:
    """That of all ranks has no group of its own."""
    shapes = [((8,), ("dp",)), ((1, 8), ("pp", "dp")), ((8, 1), ("dp", "tp")), ((2, 4), ("dp", "tp"))]
    assert said(f"[made(*each) for each in {shapes!r}]") == [
        [{"dp": 8}, {"dp": "0-7"}],
        [{"pp": 1, "dp": 8}, {"dp": "0-7", "pp": "3"}],
        [{"dp": 8, "tp": 1}, {"dp": "0-7", "tp": "3"}],
        [{"dp": 2, "tp": 4}, {"default_pg": "0-7", "dp": "3,7", "tp": "0-3"}],
    ]


@pytest.mark.slow
def test_the_first_mesh_of_all_ranks_in_order_names_them() -> None:
    """Not one of some of them or without names, nor one that is made of another one."""
    assert said("others()") == {"dp": 2, "tp": 4}
