"""Engines by name."""

from __future__ import annotations

import pytest

from meshrt.engine.local import LocalEngine
from meshrt.engine.ray_engine import RayEngine
from meshrt.engine.start import proc_mesh
from meshrt.errors import UsageError
from meshrt.mesh.engine import engine_of


def test_a_name_is_an_engine_without_arguments() -> None:
    assert engine_of("local") == LocalEngine()
    assert engine_of("ray") == RayEngine()


def test_equal_engines_share_their_hosts() -> None:
    assert hash(engine_of("ray")) == hash(engine_of("ray"))
    engine = RayEngine(resources={"CPU": 2})
    assert engine_of(engine) is engine
    assert engine == RayEngine(resources={"CPU": 2}) and engine != RayEngine(resources={"CPU": 3})


def test_a_name_that_is_none() -> None:
    with pytest.raises(UsageError, match="there is no engine 'slurm': expected one of 'local', 'ray', or an engine"):
        proc_mesh(engine="slurm")
