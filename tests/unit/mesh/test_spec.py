"""What a mesh is asked to be."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from meshrt.errors import UsageError
from meshrt.hooks.operations import body_of
from meshrt.mesh.spec import MeshSpec, check_name, default_sizes
from meshrt.wire.operations import SpawnMesh


def make(sizes: dict[str, Any], **options: Any) -> MeshSpec:
    given: dict[str, Any] = {"name": "", "env": None, "setup": None, "preload": (), **options}
    more = {"devices": given["devices"]} if "devices" in given else {}
    return MeshSpec.make(given["name"], sizes, given["env"], given["setup"], given["preload"], **more)


def over_the_wire(spec: MeshSpec) -> MeshSpec:
    return MeshSpec.of_request(
        SpawnMesh.read(msgpack.unpackb(msgpack.packb(body_of(spec.to_request("boss", "m", (3, 4))))))
    )


def test_a_spec_crosses_the_wire() -> None:
    spec = make({"b": 2, "a": 3}, name="mine", env=lambda point: {"R": str(point.rank)}, preload=["json"])
    again = over_the_wire(spec)
    assert again == spec and list(again.extent) == ["b", "a"] and again.rank_env[5] == {"R": "5"}
    assert over_the_wire(make({}, env={"A": "b"})).env == {"A": "b"}


def test_a_device_for_each_rank_is_asked_for_and_named_in_one_place() -> None:
    assert over_the_wire(make({"n": 2}, devices="own")).own_devices
    assert not make({"n": 2}).own_devices and not make({"n": 2}, devices="all").own_devices
    with pytest.raises(UsageError, match="devices is 'all' or 'own', not 'mine'"):
        make({"n": 2}, devices="mine")
    for env in ({"CUDA_VISIBLE_DEVICES": "1"}, lambda point: {"CUDA_VISIBLE_DEVICES": str(point["n"])}):
        with pytest.raises(UsageError, match="devices='own' and env= both set CUDA_VISIBLE_DEVICES"):
            make({"n": 2}, devices="own", env=env)


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
