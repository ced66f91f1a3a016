"""Devices of ranks and addresses of hosts: told where there are some, and never added up under one name."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from meshrt.memory.devices import device_names, device_totals
from meshrt.memory.groups import grouped
from meshrt.memory.heap import heap
from meshrt.memory.look import Look
from meshrt.memory.operations import Device, RankRow
from meshrt.memory.table import render
from tests.unit.memory.documents import MIB, document, lines, rank, variable


def on_device(number: int, kept: int, **facts: Any) -> RankRow:
    return rank(number, 10 * MIB, devices={"cuda:0": {"used": 0, "kept": kept, **facts}})


def test_what_torch_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert heap().devices == {}
    cuda = ModuleType("torch.cuda")
    kept = [0, 5, 7]
    told = {"is_initialized": lambda: False, "device_count": lambda: 3, "memory_reserved": kept.__getitem__}
    vars(cuda).update(told, memory_allocated=lambda index: kept[index] - 1)
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert heap().devices == {}, "a device that is not in use is not asked"
    vars(cuda)["is_initialized"] = lambda: True
    assert heap().devices == {"cuda:1": Device(5, 4), "cuda:2": Device(7, 6)}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8a1f")
    visible = heap().devices
    assert visible["cuda:1"].visible == "GPU-8a1f" and visible["cuda:2"].visible is None


def test_devices_are_named_as_the_host_calls_them() -> None:
    ranks = [on_device(n, 2 * MIB, visible=str(n)) for n in range(16)]
    ranks[3] = on_device(3, 9 * MIB, visible="3")
    text = render(document(ranks), Look())
    assert [line.split(" node")[0] for line in lines(text, "3 ", "[")] == ["[0-2,4-15] x15 a", "3 n=3 a"]
    assert "2.0 MiB cuda:0-2,4-15" in text and "9.0 MiB cuda:3" in text
    assert "on 16 devices: 39.0 MiB kept by torch; the most on node1 cuda:3: 9.0 MiB" in text
    assert device_names([on_device(0, 1, visible="GPU-8a1f"), on_device(1, 1)]) == "GPU-8a1f,cuda:0"
    assert device_totals({"node0 cuda:0": MIB}, "auto") == ["on node0 cuda:0: 1.0 MiB kept by torch"]
    assert "GPU" not in render(document([rank(0, MIB, devices={})]), Look())


def test_ranks_that_hold_different_amounts_in_shared_memory_do_not_share_a_row() -> None:
    ranks = [rank(n, 100 * MIB, store_own=0, store_held=(64 if n == 2 else 0) * MIB) for n in range(12)]
    text = render(document(ranks), Look())
    assert [line.split()[0] for line in lines(text, "2 ", "[")] == ["[0-1,3-11]", "2"]
    ranks = [rank(n, 100 * MIB, store_own=(64 if n == 5 else 0) * MIB, store_held=0) for n in range(12)]
    assert [line.split()[0] for line in lines(render(document(ranks), Look()), "5 ", "[")] == ["[0-4,6-11]", "5"]


def test_addresses_of_hosts() -> None:
    ranks = [rank(n, MIB, address=f"10.0.0.{n % 2}") for n in range(12)]
    text = render(document(ranks, {0: [variable("self.x", MIB)]}), Look())
    assert "ADDRESS" in text and " 10.0.0.0 (+1) " in text
    assert "ADDRESS" not in render(document(ranks[::2]), Look())
    assert "ADDRESS" in render(document(ranks[::2]), Look(addresses=True))
    assert {row.key: row.address for row in grouped(document(ranks), "host")} == {
        "node0": "10.0.0.0",
        "node1": "10.0.0.1",
    }
    assert lines(render(document(ranks[::2]), Look(by="host")), "HOST", "node0")[1].startswith("node0 10.0.0.0 6 ")
