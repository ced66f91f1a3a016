"""Tensors: by their storage, once for each, with their gradients; skipped where torch is not installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from meshrt.memory.buffers import Buffers
from meshrt.memory.sizing import Snapshot

torch = pytest.importorskip("torch")
MIB = 1 << 20


def test_tensors_count_by_their_storage() -> None:
    tensor = torch.ones(MIB // 4)
    array = np.ones(MIB // 4, dtype=np.float32)
    for values in (
        (tensor, tensor[:10], [tensor.view(-1, 2)]),
        (tensor, tensor.numpy()),
        (array, torch.from_numpy(array)),
    ):
        snapshot = Snapshot()
        sizes = [snapshot.measure(value) for value in values]
        assert all(size.exact and MIB <= size.bytes < MIB + 1000 for size in sizes)
        assert MIB <= snapshot.unique() < MIB + 1000
        assert all(snapshot.sharers(MIB))
    assert Snapshot().measure(torch.empty(MIB, device="meta")).bytes < 200


@pytest.mark.slow
def test_gradients_and_the_state_of_an_optimizer() -> None:
    layer = torch.nn.Linear(512, 512)
    optimizer = torch.optim.Adam(layer.parameters())
    parameters = 4 * (512 * 512 + 512)
    assert parameters <= Snapshot().measure(layer).bytes < parameters + 5000
    loss = layer(torch.ones(1, 512)).sum()
    assert not Snapshot().measure(loss).exact and Snapshot().measure(loss).why == "a graph of autograd"
    loss.backward()
    optimizer.step()
    snapshot = Snapshot()
    size, whole = snapshot.measure(layer), snapshot.measure(optimizer)
    assert 2 * parameters <= size.bytes < 2 * parameters + 5000 and size.exact
    assert 4 * parameters <= whole.bytes < 4 * parameters + 10_000
    assert snapshot.sharers(parameters) == [[1], [0]]


def test_a_subclass_is_not_asked() -> None:
    class Hostile(torch.Tensor):  # type: ignore[misc, name-defined]
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("asked")

    tensor = torch.Tensor._make_subclass(Hostile, torch.ones(MIB // 4))
    assert MIB <= Snapshot().measure(tensor).bytes < MIB + 1000
    assert Buffers().facts(tensor) == {"shape": [MIB // 4], "dtype": "float32", "device": "cpu"}
    sparse = Snapshot().measure(torch.ones(10, 10).to_sparse())
    assert not sparse.exact and "size of a Tensor unknown" in sparse.why
