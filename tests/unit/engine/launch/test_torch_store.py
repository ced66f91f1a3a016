"""The invitation in torch's store, of which there is a stand-in."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, ClassVar

import pytest

from meshrt.engine.launch.launchers import Launched
from meshrt.engine.launch.torch_store import TorchStore


class TCPStore:
    values: ClassVar[dict[str, bytes]] = {}
    made: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, *words: Any, **_options: Any) -> None:
        TCPStore.made.append(words)
        if words[0] == "nowhere":
            raise RuntimeError("The client socket has failed\nand more")

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)

    def get(self, key: str) -> bytes:
        return self.values[key]


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("torch.distributed")
    module.TCPStore = TCPStore
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    monkeypatch.setattr(TCPStore, "values", {})
    monkeypatch.setattr(TCPStore, "made", [])


def store(index: int, **more: str) -> TorchStore:
    return TorchStore.of(Launched("torchrun", index, 2), {"MASTER_ADDR": "n1", "MASTER_PORT": "29500", **more})


def test_one_writes_and_another_reads() -> None:
    first, second = store(0), store(1)
    assert second.fetch() is None
    first.publish(b"\x00text")
    assert second.fetch() == b"\x00text"
    assert [made[:4] for made in TCPStore.made] == [("n1", 29500, None, False), ("n1", 29500, None, True)]
    second.leave()
    first.close()
    assert store(1, TORCHELASTIC_RESTART_COUNT="1").fetch() is None


def test_torchrun_serves_it_itself() -> None:
    store(0, TORCHELASTIC_USE_AGENT_STORE="True").publish(b"text")
    assert TCPStore.made[0][3] is False


def test_errors_of_torch_are_errors_of_the_connection() -> None:
    with pytest.raises(ConnectionError, match=r"^The client socket has failed$"):
        store(1, MASTER_ADDR="nowhere").fetch()
