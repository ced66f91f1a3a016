"""Tensors go through the store as arrays do: once for all ranks; what a rank writes to one, nobody else sees."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt import Actor, ActorMesh, endpoint, memory, proc_mesh, put
from meshrt.host.memory import shares
from meshrt.store.packing import LARGE
from meshrt.transport.process import current_runtime
from tests.support.programs import run_python
from tests.support.waiting import holds_within

torch = pytest.importorskip("torch", reason="torch is not installed")

LONG = 60
N = LARGE // 4  # float32s that are just large enough
MIB = 1 << 20


class Keeper(Actor):
    def __init__(self, first: Any = None) -> None:
        self.kept = first

    @endpoint
    def keep(self, value: Any) -> None:
        self.kept = value

    @endpoint
    def sum(self) -> float:
        return float(self.kept.sum())

    @endpoint
    def write(self) -> list[float]:
        """Write to the first of what was kept, and look at the second."""
        self.kept[0].fill_(7)
        return [float(each.double().mean()) for each in self.kept]

    @endpoint
    def echo(self, value: Any) -> Any:
        return value

    @endpoint
    def make(self, size: int) -> Any:
        return torch.full((size,), float(os.getpid()))

    @endpoint
    def own_memory(self) -> int:
        return shares(os.getpid()).private or 0


class Own(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor with something beside."""


@pytest.fixture
def keepers() -> Iterator[ActorMesh[Keeper]]:
    """Two ranks; at the end nothing of the script's is left in the store."""
    with proc_mesh(n=2, preload=["torch"]) as mesh:
        made = mesh.spawn("keeper", Keeper)
        yield made
        made.keep.call(None).get(LONG)
        assert holds_within(LONG, lambda: taken() == 0)


def taken() -> int:
    return int(current_runtime().store.statistics()["taken"])


@pytest.mark.nightly
def test_a_tensor_is_in_memory_once(keepers: ActorMesh[Keeper]) -> None:
    keepers.keep.call(torch.ones(N)).get(LONG)
    keepers.sum.call().get(LONG)  # what that takes by itself
    before = keepers.own_memory.call().get(LONG).values()
    keepers.keep.call(torch.ones(16 * MIB)).get(LONG)
    assert keepers.sum.call().get(LONG).values() == [16.0 * MIB] * 2
    after = keepers.own_memory.call().get(LONG).values()
    assert max(now - then for now, then in zip(after, before, strict=True)) < 16 * MIB
    assert taken() == 64 * MIB
    rows = [row for row in memory(variables=True)["variables"] if "kept" in str(row)]
    assert rows and all("shared memory" in str(row) for row in rows), rows
    (name,) = memory(references=True)["references"][0]["names"]
    done = run_python("-m", "meshrt", "memory", "--holders", name)
    assert re.search(rf"\n0-1 +keeper +self\.kept +torch\.Tensor +{name}\n", done.stdout), done
    written: object = keepers.slice(n=0).keep.call_one([torch.ones(16 * MIB)] * 2).get(LONG)
    assert written is None and keepers.slice(n=0).write.call_one().get(LONG) == [7, 7]
    assert keepers.slice(n=0).own_memory.call_one().get(LONG) - before[0] > 32 * MIB, "pages of its own"


@pytest.mark.slow
def test_what_one_writes_nobody_else_sees(keepers: ActorMesh[Keeper], monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.ones(2, N)
    reference = put([tensor, tensor.view(-1)[:N], torch.zeros(N)])
    keepers.keep.call(reference).get(LONG)
    assert taken() == 3 * 4 * N + 4096, "what shares a storage is there once; a page for the pickle"
    first, second = keepers.slice(n=0), keepers.slice(n=1)
    assert first.write.call_one().get(LONG) == [7, 7, 0], "a view is one there, too"
    assert reference.get()[1].mean() == tensor.mean() == 1
    mine = reference.get()
    mine[0].zero_()
    assert second.write.call_one().get(LONG) == [7, 7, 0] and mine[1].sum() == 0
    assert reference.get()[0].sum() == 2 * N

    def full(*_arguments: object, **_more: object) -> None:
        raise OSError("full")

    monkeypatch.setattr(current_runtime().store._arenas, "write", full)
    keepers.keep.call([torch.ones(N), torch.ones(4 * N)]).get(LONG)
    assert current_runtime().store.statistics()["refusals"] == 1
    assert keepers.write.call().get(LONG).values() == [[7, 1]] * 2, (
        "part of the message then: it can be written all the same"
    )


def kinds() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    plain = torch.rand(4, N, generator=generator)
    own = plain.clone().as_subclass(Own)
    own.beside = "note"
    return {
        "slice": plain[1:3, ::2],
        "transposed": plain.t(),
        "expanded": plain[0].expand(3, N),
        "no dimension": plain[2, 5],
        "empty": torch.empty(0, 7),
        "needs a gradient": plain.clone().requires_grad_(),
        "parameter": torch.nn.Parameter(plain.clone()),
        "buffer": torch.nn.Linear(512, 512).state_dict(),
        "half": plain.bfloat16(),
        "complex": torch.complex(plain, plain).conj(),
        "bool": plain > 0.5,
        "float8": plain.to(torch.float8_e4m3fn),
        "small float8": torch.ones(5).to(torch.float8_e5m2),
        "unsigned": (plain * 100).to(torch.uint16),
        "quantized": torch.quantize_per_tensor(plain, 0.1, 3, torch.qint8),
        "sparse": torch.eye(300).to_sparse(),
        "sparse rows": torch.ones(300, 300).to_sparse_csr(),
        "subclass": own,
        "storage": plain.untyped_storage(),
        "meta": torch.empty(4, N, device="meta"),
        "small": torch.ones(10)[::2],
    }


def alike(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
    if not isinstance(left, torch.Tensor):
        left, right = (torch.empty(0, dtype=torch.uint8).set_(storage) for storage in (left, right))
    facts = [(x.dtype, x.shape, x.layout, x.requires_grad, x.is_quantized, type(x), x.device) for x in (left, right)]
    if facts[0] != facts[1] or (left.layout is torch.strided and left.stride() != right.stride()):
        return False
    if left.device.type == "meta":
        return True
    dense = [
        x.dequantize() if x.is_quantized else x.to_dense() if x.layout is not torch.strided else x
        for x in (left, right)
    ]
    return bool(torch.equal(*(x.float() if x.dtype is torch.float8_e4m3fn else x for x in dense)))


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Sparse (CSR|invariant):UserWarning",
    "ignore:torch.quantize_per:UserWarning",
    "ignore:TypedStorage is deprecated:UserWarning",
)
def test_every_kind_comes_back_as_it_was(keepers: ActorMesh[Keeper]) -> None:
    first = keepers.slice(n=0)
    for name, value in kinds().items():
        plain, by_value = first.echo.call_one(value).get(LONG), first.echo.call_one((value, lambda: 0)).get(LONG)[0]
        assert alike(value, plain) and alike(value, by_value), name
        del plain, by_value
    assert getattr(first.echo.call_one(kinds()["subclass"]).get(LONG), "beside", "") == "note"
    module = torch.nn.Linear(512, 512)
    module.tied = module.weight
    back = first.echo.call_one(module).get(LONG)
    assert back.tied is back.weight and torch.equal(back.weight, module.weight) and back.weight.requires_grad
    del value, back
    results = keepers.make.call(N).get(LONG).values()
    assert len({float(result[0]) for result in results}) == 2
    results[0].add_(1)
    assert float(results[0][5]) == float(results[0][0])
    with proc_mesh(n=1) as mesh:
        built = mesh.spawn("built", Keeper, torch.ones(N))
        assert built.sum.call_one().get(LONG) == N, "where torch was not loaded"
    before = taken()
    small = keepers.slice(n=0).echo.call_one(torch.ones(N - 1)).get(LONG)
    assert small.untyped_storage().resizable() and taken() == before, "as torch sends it"
    assert not keepers.slice(n=0).echo.call_one(torch.ones(N)).get(LONG).untyped_storage().resizable()
