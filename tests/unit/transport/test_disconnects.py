"""Connections that end while it is not known whether their rank has."""

from __future__ import annotations

import pytest

from meshrt.hooks.fate import Fate
from meshrt.transport import disconnects
from meshrt.transport.driver import Driver
from tests.unit.transport.fake_rank import (
    Answers,
    FakeTree,
    Listen,
    asked,
    call,
)

DIED = Fate("died", signal=9)


@pytest.mark.row("N1")
def test_a_disconnected_link_fails_when_the_end_of_its_rank_is_known(
    driver: Driver, listen: Listen, tree: FakeTree
) -> None:
    rank, _, receiver = asked(driver, listen)
    rank.serve()
    rank.close()
    assert not driver.wait(receiver, 0.05) and not receiver.lost
    tree.kill(driver, 0, DIED)
    assert receiver.lost == [(0, "died", True)]


@pytest.mark.row("N1")
def test_a_disconnected_link_whose_rank_does_not_end_is_lost(
    driver: Driver, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disconnects, "DISCONNECTED_SECONDS", 0.05)
    rank, out, receiver = asked(driver, listen)
    rank.serve()
    rank.close()
    assert driver.wait(receiver, 10)
    assert receiver.lost == [(0, "link", True)]
    late = Answers()
    driver.send(out, call(2), 2, late, 0)
    assert late.lost == [(0, "link", False)]
