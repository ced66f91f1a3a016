"""Whether a binding is undone, by the variables of Open MPI 4.1."""

from __future__ import annotations

import os

import pytest

from meshrt.engine.launch.binding import unbind

BOUND = {"OMPI_MCA_orte_bound_at_launch": "1", "OMPI_MCA_rmaps_base_mapping_policy": "ppr:1:node"}


@pytest.mark.parametrize(
    ("variables", "undone"),
    [
        (BOUND, True),
        ({}, False),
        ({**BOUND, "OMPI_MCA_hwloc_base_binding_policy": "socket"}, False),
        ({**BOUND, "OMPI_MCA_rmaps_base_mapping_policy": "ppr:1:node:PE=4"}, False),
    ],
)
def test_only_the_default_is_undone(variables: dict[str, str], undone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _pid, processors: asked.append(set(processors)))
    assert unbind(variables) is undone
    assert asked == ([set(range(os.sysconf("SC_NPROCESSORS_CONF")))] if undone else [])
