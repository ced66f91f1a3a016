"""Ranks on the machine of the script, beside those on others: each reaches each, also what was made before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster

MIXED = Path(__file__).with_name("mixed.py")


@pytest.mark.slow
def test_ranks_of_all_machines_and_the_script_call_each_other(cluster: Cluster) -> None:
    done = cluster.start(program=MIXED)
    out, err = done.communicate(timeout=200)
    assert done.returncode == 0, out + err
    places = {"script": ["here"], "early": ["here"], "far": ["n1", "n2"], "late": ["here"]}
    asked = [f"{name} asks {other} {places[other]}" for name in places for other in places if name != other]
    arrays = ["arrays {3000000}"] * 2
    hosts = [
        "made by a rank ['n2']",
        "<HostMesh n1, n2 (hosts=2)> ('n2',)",
        "on one ['n2', 'n2', 'n2']",
        "of the engine n1 {}",
        "made by a rank ['n1', 'n2', 'n1']",
    ]
    assert out.splitlines() == [*asked, "given True", *arrays, *hosts], err
