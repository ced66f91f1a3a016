"""What a mesh is asked to be, and whether the machine can hold it."""

from __future__ import annotations

import os
import resource
from types import SimpleNamespace
from typing import Any

import msgpack
import psutil
import pytest

from meshrt.errors import SpawnError, UsageError
from meshrt.hooks.operations import body_of
from meshrt.mesh import spec as spec_module
from meshrt.mesh.spec import MeshSpec, check_limits, check_name, default_sizes
from meshrt.wire.operations import SpawnMesh


def make(sizes: dict[str, Any], **options: Any) -> MeshSpec:
    given: dict[str, Any] = {"name": "", "env": None, "setup": None, "preload": (), **options}
    return MeshSpec.make(given["name"], sizes, given["env"], given["setup"], given["preload"])


def over_the_wire(spec: MeshSpec) -> MeshSpec:
    return MeshSpec.of_request(SpawnMesh.read(msgpack.unpackb(msgpack.packb(body_of(spec.to_request("boss"))))))


def test_a_spec_crosses_the_wire() -> None:
    spec = make({"b": 2, "a": 3}, name="mine", env=lambda point: {"R": str(point.rank)}, preload=["json"])
    again = over_the_wire(spec)
    assert again == spec and list(again.extent) == ["b", "a"] and again.rank_env[5] == {"R": "5"}
    assert over_the_wire(make({}, env={"A": "b"})).env == {"A": "b"}


@pytest.mark.parametrize("name", ["", "1a", "a b", "a/b", "-a", "a\n", "ä", "x" * 65, None, 3])
def test_names_that_cannot_be_typed_are_refused(name: object) -> None:
    with pytest.raises(UsageError, match="a thing is named with a letter"):
        check_name("a thing", name)


@pytest.mark.parametrize("name", ["a", "_", "Trainer-2_b", "x" * 64])
def test_names_that_can_be_typed(name: str) -> None:
    assert check_name("a thing", name) == name


@pytest.mark.parametrize(
    ("visible", "sizes"),
    [("", {}), ("-1", {}), ("0", {"gpus": 1}), ("0,1,2", {"gpus": 3}), ("GPU-abc, GPU-def", {"gpus": 2})],
)
def test_visible_gpus_are_the_default(monkeypatch: pytest.MonkeyPatch, visible: str, sizes: dict[str, int]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert default_sizes() == sizes


def limits(monkeypatch: pytest.MonkeyPatch, files: int, processes: int, free: int, threads: int = 100) -> None:
    """A machine with these limits, for a user that is not root."""
    both = {resource.RLIMIT_NOFILE: (files, files), resource.RLIMIT_NPROC: (processes, processes)}
    monkeypatch.setattr(resource, "getrlimit", lambda which: both[which])
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    process = SimpleNamespace(info={"uids": SimpleNamespace(real=1234), "num_threads": threads})
    other = SimpleNamespace(info={"uids": SimpleNamespace(real=1), "num_threads": 10**6})
    monkeypatch.setattr(psutil, "process_iter", lambda attributes: [process, other])
    monkeypatch.setattr(spec_module, "free_in_group", list)


UNLIMITED = resource.RLIM_INFINITY
GIB = 1 << 30


@pytest.mark.parametrize(
    "variable",
    ["MESHRT_DEBUG", "MESHRT_POST_MORTEM", "MESHRT_DEBUG_AUTO", "MESHRT_STORE_SPILL", "MESHRT_STORE_SEPARATE"],
)
def test_a_switch_with_a_value_that_is_not_known(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for value in ("false", "no", "OFF", "2"):
        expected = f"{variable} is one of 0, .*, not '{value}'"
        with pytest.raises(UsageError, match=expected):
            MeshSpec.make("mesh", {"n": 1}, {variable: value}, None, ())
        monkeypatch.setenv(variable, value)
        with pytest.raises(UsageError, match=expected):
            MeshSpec.make("mesh", {"n": 1}, None, None, ())
        monkeypatch.delenv(variable)


def test_a_machine_that_can_hold_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 100_000, 100_000, 64 * GIB)
    check_limits(1000, 0)
    limits(monkeypatch, UNLIMITED, UNLIMITED, 64 * GIB)
    check_limits(5000, 0)


def test_too_few_files_processes_or_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, 1024, 100_000, 64 * GIB)
    with pytest.raises(SpawnError, match=r"1000 ranks need about \d+ open files .* the limit is 1024") as caught:
        check_limits(1000, 10)
    most = int(str(caught.value).rpartition(" ")[2])
    check_limits(most, 10)
    with pytest.raises(SpawnError):
        check_limits(most + 1, 10)

    limits(monkeypatch, UNLIMITED, 1000, 64 * GIB, threads=500)
    with pytest.raises(SpawnError, match=r"200 ranks need about 600 threads, 500 of 1000 are in use: .*ulimit -u"):
        check_limits(200, 0)
    check_limits(150, 0)

    limits(monkeypatch, UNLIMITED, UNLIMITED, GIB)
    with pytest.raises(SpawnError, match=r"1000 idle ranks need about \d+ MiB, 1024 MiB are free") as caught:
        check_limits(1000, 0)
    check_limits(int(str(caught.value).rpartition(" ")[2]), 0)


def test_the_limit_of_the_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    limits(monkeypatch, UNLIMITED, UNLIMITED, 64 * GIB)
    monkeypatch.setattr(spec_module, "free_in_group", lambda: [GIB])
    with pytest.raises(SpawnError, match="1024 MiB are free"):
        check_limits(1000, 0)
