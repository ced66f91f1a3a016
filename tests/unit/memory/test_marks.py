"""Numbers of objects and of memory: each address has its own, and nothing of them stays in the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

from meshrt.memory.buffers import HOST, MAPPED, Place
from meshrt.memory.marks import REGION, SLOT, Addresses, Marks
from tests.support.programs import environment


def test_each_address_has_a_number_of_its_own() -> None:
    addresses = Addresses()
    places = [0, 1 << SLOT, (1 << REGION) - 1, 1 << REGION, 5 << REGION, (1 << 47) - 16]
    assert [addresses.get(each) for each in places] == [0] * len(places)
    for number, each in enumerate(places, 1):
        addresses.set(each, number)
    assert [addresses.get(each) for each in places] == list(range(1, len(places) + 1))
    assert len(addresses.regions) == 4


def test_memory_is_not_taken_for_an_object_at_the_same_address() -> None:
    marks = Marks()
    places: list[Place] = [(HOST, 4096), (MAPPED, 4096), ("cuda:0", 4096), ("shared memory", (1, 4096))]
    marks.objects.set(4096, 9)
    assert [marks.of_place(each) for each in places] == [0] * 4
    for number, each in enumerate(places, 1):
        marks.set_place(each, number)
    assert [marks.of_place(each) for each in places] == [1, 2, 3, 4] and marks.objects.get(4096) == 9


COUNTED = """
import gc, threading
from meshrt.memory.sizing import Snapshot

def kilobytes():
    gc.collect()
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))

base = [[n] for n in range(500_000)]
values = [base, dict(enumerate(base)), base[:]]

def count():
    snapshot = Snapshot()
    assert all(snapshot.measure(value).exact for value in values)

before = kilobytes()
thread = threading.Thread(target=count)
thread.start()
thread.join()
print(kilobytes() - before)
"""


@pytest.mark.slow
def test_a_count_leaves_the_process_as_large_as_it_was() -> None:
    """In a process of its own: what others have freed would do for it."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED], env=environment(), capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 14_000, "of a table of half a million objects, which takes 40 MiB, nothing is kept"
