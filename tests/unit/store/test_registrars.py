"""When a process waits for its own end: a rank whose host agent, which has its store, has ended."""

from __future__ import annotations

import os

import pytest

from meshrt.store.registrars import Registrars

AGENT_OF_RANK = os.getppid()
AGENT_OF_SCRIPT = os.getpid() + 1  # a child


@pytest.mark.parametrize(
    ("home", "lost", "waits"),
    [
        (AGENT_OF_RANK, True, True),
        (AGENT_OF_RANK, False, False),
        (AGENT_OF_SCRIPT, True, False),
    ],
    ids=["agent lost", "agent lives", "agent of the script"],  # a pid in a name differs between the test processes
)
def test_a_rank_waits_for_its_end_and_no_other_process_does(
    home: int, lost: bool, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("meshrt.store.registrars.time.sleep", slept.append)
    registrars = Registrars("/nowhere", bytes(32), lambda _seconds: home, lambda _pid: "", lambda: None)
    registrars.wait_for_own_end()
    assert slept == [], "there is no connection yet"
    registrars.of(home).lost = lost
    registrars.wait_for_own_end()
    assert bool(slept) is waits
