"""Tests for a run on two hosts, which `tests/hosts/test_hosts.py` starts: the ranks are there."""

from __future__ import annotations

import json
import socket
import time

from meshrt import Actor, endpoint, proc_mesh
from tests.support.programs import run_python

_DAY = 86_400
_SCRIPT = """
import json
from meshrt import proc_mesh
from tests.hosts.sample import Place
print(json.dumps([*proc_mesh(n=4).spawn("place", Place).where.call().get(60).values()]))
"""


class Place(Actor):
    """Says where it is."""

    @endpoint
    def where(self) -> tuple[str, float]:
        """Return the name of the host, and what its monotonic clock says."""
        return socket.gethostname(), time.monotonic()


def _check(places: list[tuple[str, float]]) -> None:
    """Check the hosts, and by how many days their clocks are ahead of that of the script."""
    assert [name for name, _ in places] == ["n1", "n1", "n2", "n2"]
    assert [round((clock - time.monotonic()) / _DAY) for _, clock in places] == [1, 1, 2, 2]


def test_ranks_of_a_test_are_on_two_hosts() -> None:
    _check([*proc_mesh(n=4).spawn("place", Place).where.call().get(60).values()])


def test_ranks_of_a_script_that_a_test_starts_are_on_two_hosts() -> None:
    done = run_python("-c", _SCRIPT, seconds=90)
    _check([(name, clock) for name, clock in json.loads(done.stdout)])


def test_an_odd_number_of_ranks_is_on_one_host() -> None:
    assert {name for name, _ in proc_mesh(n=1).spawn("place", Place).where.call().get(60).values()} == {"n1"}
