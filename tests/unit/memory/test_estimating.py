"""Sizes that a budget has cut off: what dicts of arrays hold that came in messages, and who is shown first."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from meshrt.hooks.facts import ActorState
from meshrt.memory.groups import grouped
from meshrt.memory.look import Look
from meshrt.memory.operations import MeasureVariables
from meshrt.memory.rows import rows
from meshrt.memory.sizing import Budget, Snapshot
from meshrt.memory.table import render
from meshrt.mesh.value_mesh import ValueMesh
from meshrt.selection import Shape
from meshrt.store.lease import Reading
from meshrt.store.mapping import Mapping
from tests.unit.memory.documents import MIB, document, lines, rank, variable

COUNT, SIZE = 20_000, 1000


def received(buffer: Any) -> Any:
    """Return an array as it comes out of a message: a view of an array of a buffer."""
    return np.frombuffer(memoryview(buffer), np.uint8).reshape(-1)


def in_memory_of_their_own() -> list[Any]:
    return [received(bytearray(SIZE)) for _ in range(COUNT)]


def in_one_message() -> list[Any]:
    message = memoryview(bytearray(COUNT * SIZE))
    return [received(message[start : start + SIZE]) for start in range(0, COUNT * SIZE, SIZE)]


def in_shared_memory() -> list[Any]:
    file = os.memfd_create("test")
    os.truncate(file, COUNT * SIZE)
    mapping = Mapping(file, COUNT * SIZE)
    os.close(file)
    lease: Any = SimpleNamespace(loan=SimpleNamespace(segment=7), window=mapping.window)
    reading = Reading(lease)
    return [received(reading.window(start, SIZE)) for start in range(0, COUNT * SIZE, SIZE)]


@pytest.mark.nightly
@pytest.mark.parametrize("make", [in_memory_of_their_own, in_one_message, in_shared_memory])
@pytest.mark.parametrize("objects", [4200, 9000, 15_000, 40_000])
def test_of_a_dict_of_arrays_the_estimate_is_near(make: Callable[[], list[Any]], objects: int) -> None:
    kept = dict(enumerate(make()))
    whole = Snapshot().measure(kept)
    part = Snapshot().measure(kept, Budget(objects=objects))
    assert whole.exact and whole.likely >= COUNT * SIZE
    assert not part.exact and part.estimate is not None and part.likely == part.estimate
    assert whole.likely / 2.5 < part.estimate < whole.likely * 2.5, (part, whole)


def test_what_a_call_has_returned_is_counted() -> None:
    """The class is the runtime's, the values are not; its shape is a handle of the runtime."""
    arrays = [received(bytearray(MIB)) for _ in range(4)]
    size = Snapshot().measure({"step 1": ValueMesh(Shape.from_extent({"n": 4}), arrays)})
    assert size.exact and 4 * MIB < size.bytes < 4 * MIB + 5000


class Slices(Budget):
    """Counts the slices of a walk, and ends none."""

    count = 0

    def ended(self, objects: int = 0) -> bool:
        self.count += 1
        return super().ended(objects)


def test_arrays_are_counted_within_the_time_that_others_take() -> None:
    """Not a slice for each array, which waits for the GIL each time."""
    kept = dict(enumerate(in_memory_of_their_own()))
    budget = Slices()
    assert Snapshot().measure(kept, budget).exact and budget.count < 200


def test_what_is_likely_to_be_the_largest_is_the_first() -> None:
    class Owner:
        def __init__(self) -> None:
            self.counted = bytearray(MIB)
            self.kept = dict(enumerate(in_memory_of_their_own()))

    actor = ActorState("owner", None, None, None, instance=Owner())
    told, _ = rows([actor], MeasureVariables(actor="owner", objects=5000, most=1))
    assert [row.where for row in told.rows] == ["self.kept"] and not told.rows[0].sizes[0].exact


def test_memory_that_was_not_counted_and_memory_of_devices_count_in_the_order() -> None:
    shared = variable("self.shared", 50, type="dict", devices={"shared memory": 9 * MIB})
    guessed = variable("self.guessed", 10, type="set", exact=False, estimate=5 * MIB, why="budget")
    whole = document([rank(0, MIB)], {0: [variable("self.small", MIB), shared, guessed]})
    assert [row.key for row in grouped(whole, "type")] == ["dict", "set", "list"]
    assert lines(render(whole, Look(by="type")), "dict", "set", "list") == [
        "dict 1 = 50 B + 9.0 MiB shared memory",
        "set 1 >= 10 B ~ 5.0 MiB",
        "list 1 = 1.0 MiB",
    ]


def test_ranks_with_other_estimates_do_not_share_a_row() -> None:
    said = {
        n: [variable("self.x", MIB, exact=False, estimate=size * MIB, why="budget")] for n, size in enumerate((20, 200))
    }
    text = render(document([rank(n, MIB) for n in range(2)], said), Look())
    assert lines(text, "self.x") == ["self.x list >= 1.0 MiB ~ 200.0 MiB 1", "self.x list >= 1.0 MiB ~ 20.0 MiB 0"]
