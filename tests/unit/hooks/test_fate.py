"""How a rank ended: over the wire, as text, and as the error of a call."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from meshrt.errors import HostLost, LinkLost, MeshError, MeshStopped, ProcessDied, RankPlace, SpawnError
from meshrt.hooks.fate import Fate

PLACE = RankPlace("m", "trainer", 3, (("hosts", 1), ("gpus", 1)))

FATES = [
    (Fate("died", host="node7", pid=4711, exit_code=3), ProcessDied, "exited with code 3"),
    (Fate("died", host="node7", pid=4711, signal=9, log_tail=("a", "b")), ProcessDied, "was killed by SIGKILL"),
    (Fate("died", host="node7", exit_code=3, hint="sys.exit(3)"), ProcessDied, "exited with code 3 (sys.exit(3))"),
    (Fate("died", host="node7", pid=4711, signal=64), ProcessDied, "was killed by"),
    (Fate("host", host="node7"), HostLost, "node7"),
    (Fate("stopped", host="node7", pid=4711), MeshStopped, "was stopped"),
    (Fate("link"), LinkLost, "closed its connection"),
    (Fate("unborn", hint="no memory"), SpawnError, "could not be started: no memory"),
]


@pytest.mark.parametrize(("fate", "kind", "text"), FATES)
def test_each_fate_makes_its_error(fate: Fate, kind: type[MeshError], text: str) -> None:
    error = fate.error(PLACE, "step", may_have_run=False)
    assert type(error) is kind
    assert text in str(error) and "rank 3" in str(error) and "hosts=1, gpus=1" in str(error)
    assert str(fate) and fate.hint in str(fate)


@pytest.mark.parametrize(("fate", "kind", "text"), FATES)
def test_a_fate_crosses_the_wire(fate: Fate, kind: type[MeshError], text: str) -> None:
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(fate), type=Fate)
    assert replace(again, log_tail=()) == replace(fate, log_tail=())
    assert list(again.log_tail) == list(fate.log_tail)
    assert str(again.error(PLACE, "step")) == str(fate.error(PLACE, "step"))


def test_the_error_of_a_death_has_all_facts() -> None:
    fate = Fate("died", host="node7", pid=4711, signal=11, stack="Fatal Python error", log_tail=("last words",))
    other = RankPlace("m", "trainer", 4)
    error = fate.error(PLACE, "step", others=[other])
    assert isinstance(error, ProcessDied)
    assert (error.signal, error.exit_code, error.rank, error.place.pid, error.place.host) == (
        11,
        None,
        3,
        4711,
        "node7",
    )
    assert error.others == (other,) and error.log_tail == ("last words",) and error.may_have_run
    text = str(error)
    for part in ("trainer.step()", "SIGSEGV", "node7", "pid 4711", "may have run", "also lost: rank 4", "| last words"):
        assert part in text
