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


def torch_of(monkeypatch: pytest.MonkeyPatch, *groups: Group, backend: str = "nccl", **library: Any) -> ModuleType:
    module = ModuleType(_C10D)
    module.__file__ = __file__
    members = {group: {0: 0, 1: 1} for group in groups}
    module.__dict__["_world"] = SimpleNamespace(
        default_pg=groups[0] if groups else None,
        pg_map=dict.fromkeys(groups, (backend, None)),
        pg_group_ranks=members,
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
    assert not is_in_torch("/site/torchdata/loader.py", "")
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


def entry(number: int, group: str, thread: int, **more: object) -> str:
    """Return what the recorder has of a collective."""
    facts = {
        "is_p2p": False, "retired": False, "state": "scheduled", "profiling_name": "gloo:all_reduce",
        "input_sizes": [[4, 8]], "time_created_ns": number * 10**9, "thread_id": str(thread),
        "process_group": [group, ""], "collective_seq_id": number, **more,
    }  # fmt: skip
    return json.dumps(facts)


def recorder(*entries: str) -> dict[str, Any]:
    text = f'{{"pg_status": {{"0": {{}}}}, "entries": [{", ".join(entries)}]}}'
    return {"_dump_fr_trace_json": lambda *_: text}


def test_the_recorder_knows_what_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        entry(1, "0", 5, retired=True), entry(2, "0", 5, state="completed"), entry(9, "0", 5, is_p2p=True),
        entry(3, "0", 5), entry(4, "0", HERE.ident, profiling_name="nccl:_all_gather_base"), entry(2, "1", 5),
    ]  # fmt: skip
    groups = Group("0", "default_pg", 4), Group("1", "mesh_dp", 2)
    torch_of(monkeypatch, *groups, **recorder(*entries))
    world = read_world([HERE])
    assert world is not None and (world.actor, world.blocked) == ("main", 0)
    first = world.groups[0]
    assert (first.collective, first.sizes, first.entered) == ("all_reduce #3 of default_pg", "[4, 8]", 4)
    assert first.seconds > 1e6
    world = read_world([BlockedThread(1, "main", 0.0)])  # what another thread of torch's has entered for it
    assert world is not None and world.groups[world.blocked].name == "dp"
    torch_of(monkeypatch, *groups, **recorder(entry(2, "1", HERE.ident), entry(9, "0", 5)))
    world = read_world([])  # of a thread that has given up in the last one that it has entered
    assert world is not None and world.groups[world.last].name == "dp"


def all_reduce(module: ModuleType, group: Group | None = None) -> object:
    return read_world([HERE])


def test_without_the_recorder_the_stack_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Group("0", "default_pg", 7), Group("1", "mesh_dp", 3)
    module = torch_of(monkeypatch, *groups)
    world = read_world([HERE])
    assert world is not None and world.actor == ""
    for group, expected in ((None, "all_reduce #7 of default_pg"), (groups[1], "all_reduce #3 of dp")):
        found: Any = all_reduce(module, group)
        assert found.groups[found.blocked].collective == expected and found.groups[found.blocked].seconds == 3.0


def send(module: ModuleType, group: Group | None = None) -> object:
    return read_world([HERE])


def test_a_thread_waits_for_the_call_that_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has begun before, without waiting for it, is under way in another group."""
    groups = Group("0", "default_pg", 3), Group("1", "mesh_dp", 2)
    entries = [entry(3, "0", HERE.ident), entry(2, "1", HERE.ident, time_created_ns=10**11)]
    module = torch_of(monkeypatch, *groups, **recorder(*entries))
    found: Any = all_reduce(module, groups[1])
    assert found.groups[found.blocked].collective == "all_reduce #2 of dp"
    found = send(module, groups[0])
    assert found.actor == ""


def test_what_gloo_sends_to_one_rank_is_no_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its counter counts that, too; the recorder does not, and forgets the oldest ones."""

    def entered(*entries: str) -> list[tuple[int, bool]]:
        groups = Group("0", "default_pg", 7), Group("1", "mesh_dp", 3), Group("2", "undefined", 0)
        torch_of(monkeypatch, *groups, backend="gloo", **(recorder(*entries) if entries else {}))
        world = read_world([])
        assert world is not None
        return [(group.entered, group.unsure) for group in world.groups]

    monkeypatch.delenv("TORCH_FR_BUFFER_SIZE", raising=False)
    assert entered() == [(7, True), (3, True), (0, False)]
    assert entered(entry(2, "0", 5, retired=True, record_id=0)) == [(2, False), (0, False), (0, False)]
    assert entered(entry(2, "0", 5, retired=True, record_id=9)) == [(2, False), (3, True), (0, False)]
    assert entered(entry(9, "0", 5, retired=True)) == [(7, False), (0, False), (0, False)]  # of an earlier world
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    torch_of(monkeypatch, Group("0", "default_pg", 7), backend="gloo", _dump_fr_trace_json=lambda *_: '{"entries": []}')
    world = read_world([])
    assert world is not None and not world.groups[0].entered


def test_which_of_several_handles_is_waited_for_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Group("0", "default_pg", 3), Group("1", "mesh_dp", 2)
    mine = HERE._replace(handle=True)
    torch_of(monkeypatch, *groups, **recorder(entry(3, "0", HERE.ident), entry(2, "1", HERE.ident)))
    world = read_world([mine])
    assert world is not None and world.actor == ""
    assert (world := read_world([HERE])) is not None and world.actor == "main"  # waits for all, as a tensor does
    torch_of(monkeypatch, *groups, **recorder(entry(3, "0", HERE.ident), entry(2, "1", 5)))
    assert (world := read_world([mine])) is not None and (world.actor, world.blocked) == ("main", 0)
