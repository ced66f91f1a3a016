"""What is read of torch's process groups: none, and parts that another version of torch does not have."""

from __future__ import annotations

import json
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from meshrt.collectives.torch_groups import BlockedThread, is_in_torch, read_world

_C10D, _LIBRARY = "torch.distributed.distributed_c10d", "torch._C._distributed_c10d"
HERE = BlockedThread(threading.get_ident(), "main", 3.0)


class Group:
    """As much of a process group as is read."""

    def __init__(self, name: str, description: str, entered: int | None) -> None:
        self.group_name, self.group_desc, self._entered = name, description, entered

    def rank(self) -> int:
        return 1

    def _get_sequence_number_for_group(self) -> int:
        if self._entered is None:
            raise RuntimeError("this backend does not count")
        return self._entered


def torch_of(monkeypatch: pytest.MonkeyPatch, *groups: Group, **library: Any) -> ModuleType:
    module = ModuleType(_C10D)
    module.__file__ = __file__
    members = {group: {0: 0, 1: 1} for group in groups}
    module.__dict__["_world"] = SimpleNamespace(
        default_pg=groups[0] if groups else None, pg_map=members, pg_group_ranks=members
    )
    monkeypatch.setitem(sys.modules, _C10D, module)
    monkeypatch.setitem(sys.modules, _LIBRARY, SimpleNamespace(**library))
    return module


def test_without_torch_or_a_group_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, _C10D, raising=False)
    assert read_world([HERE]) is None
    torch_of(monkeypatch)
    assert read_world([HERE]) is None


def test_a_thread_waits_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__path__=["/site/torch"]))
    assert is_in_torch("/site/torch/distributed/distributed_c10d.py", "work.wait")
    assert is_in_torch("train.py", "self.handle.wait") and is_in_torch("train.py", "loss.backward")
    assert not is_in_torch("train.py", "time.sleep") and not is_in_torch("train.py", "")
    monkeypatch.delitem(sys.modules, "torch")
    assert not is_in_torch("train.py", "event.wait")


def test_a_torch_with_other_parts_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    torch_of(monkeypatch, Group("0", "default_pg", 1))
    del sys.modules[_C10D].__dict__["_world"]
    assert read_world([HERE]) is None


def test_the_names_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Group("0", "default_pg", 7), Group("1", "mesh_dp", 3), Group("2", "undefined", None)
    torch_of(monkeypatch, *groups)
    world = read_world([])
    assert world is not None and (world.rank, world.actor) == (1, "")
    found = [(group.name, group.ranks, group.entered, group.number) for group in world.groups]
    assert found == [("default_pg", "0-1", 7, 0), ("dp", "0-1", 3, 0), ("group_2", "0-1", 0, 0)]


def test_the_recorder_knows_what_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(number: int, group: str, thread: int, **more: object) -> str:
        facts = {
            "is_p2p": False, "retired": False, "state": "scheduled", "profiling_name": "gloo:all_reduce",
            "input_sizes": [[4, 8]], "time_created_ns": number * 10**9, "thread_id": str(thread),
            "process_group": [group, ""], "collective_seq_id": number, **more,
        }  # fmt: skip
        return json.dumps(facts)

    entries = [
        entry(1, "0", 5, retired=True), entry(2, "0", 5, state="completed"), entry(9, "0", 5, is_p2p=True),
        entry(3, "0", 5), entry(4, "0", HERE.ident, profiling_name="nccl:_all_gather_base"), entry(2, "1", 5),
    ]  # fmt: skip
    text = f'{{"pg_status": {{"0": {{}}}}, "entries": [{", ".join(entries)}]}}'
    groups = Group("0", "default_pg", 4), Group("1", "mesh_dp", 2)
    torch_of(monkeypatch, *groups, _dump_fr_trace_json=lambda *_: text)
    world = read_world([HERE])
    assert world is not None and (world.actor, world.blocked) == ("main", 0)
    first = world.groups[0]
    assert (first.collective, first.sizes, first.entered) == ("all_reduce #3 of default_pg", "[4, 8]", 4)
    assert first.seconds > 1e6
    world = read_world([BlockedThread(1, "main", 0.0)])  # what another thread of torch's has entered for it
    assert world is not None and world.groups[world.blocked].name == "dp"


def all_reduce(module: ModuleType, tensor: object, group: Group | None = None) -> object:
    return read_world([HERE])


def test_the_stack_tells_before_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Group("0", "default_pg", 7), Group("1", "mesh_dp", 3)
    module = torch_of(monkeypatch, *groups)  # there is no recorder
    world = read_world([HERE])
    assert world is not None and world.actor == ""
    for group, expected in ((None, "all_reduce #7 of default_pg"), (groups[1], "all_reduce #3 of dp")):
        found: Any = all_reduce(module, SimpleNamespace(shape=(4, 8)), group)
        assert found.groups[found.blocked].collective == expected and found.groups[found.blocked].seconds == 3.0
        assert found.groups[found.blocked].sizes == "[4, 8]" and not found.groups[found.blocked].recorded
