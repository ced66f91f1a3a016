"""What a call that is not answered yet tells of those that it waits for, at every moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.errors import ProcessDied
from meshrt.hooks.facts import Wait
from meshrt.hooks.fate import Fate
from meshrt.mesh.call import MeshCall, StreamCall
from meshrt.mesh.target import Target
from meshrt.selection import Shape
from meshrt.transport.outlink import Loss, OutLink
from meshrt.transport.pending import Pending
from meshrt.wire.addresses import HostAddress, MeshAddress, RankAddress
from meshrt.wire.frames import Frame
from meshrt.wire.messages import RESULT

SHAPE = Shape.from_extent({"n": 2})
NOWHERE = MeshAddress((HostAddress(0, 0, b"/nowhere"),), 4)
TARGET = Target("m1", "worker", NOWHERE, SHAPE, SHAPE, lambda _mesh_id, _rank: ("", 0))
DRIVER: Any = SimpleNamespace(followers=())


@pytest.mark.parametrize("kind", [MeshCall, StreamCall])
def test_who_has_not_answered(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may look when the last answer has come, and nobody knows yet that it was the last."""
    call = kind(DRIVER, TARGET, "step")
    any_of_them = kind is StreamCall
    assert call.awaited() == Wait("m1", "worker", "step", (0, 1), 2, any_of_them)
    call.deliver(1, Frame(RESULT, [0, None], b""))
    assert call.awaited() == Wait("m1", "worker", "step", (0,), 1, any_of_them)
    seen: list[Wait | None] = []
    monkeypatch.setattr(Pending, "finish", lambda pending: seen.append(pending.awaited()))
    call.deliver(0, Frame(RESULT, [0, None], b""))
    assert seen == [None]


def test_an_error_names_those_that_were_found_lost_and_not_told_of() -> None:
    """The thread that reads tells of many at once, and new calls fail from when it has found the first one."""
    three = Shape.from_extent({"n": 3})
    target = Target("m1", "worker", NOWHERE, three, three, lambda _mesh_id, _rank: ("", 0))
    links: list[OutLink] = []

    def link_to(key: tuple[str, int, str], address: RankAddress) -> OutLink:
        links.append(OutLink(key, address))
        return links[-1]

    driver: Any = SimpleNamespace(followers=(), link_to=link_to, wake_followers=lambda: None)
    call = MeshCall(driver, target, "step")
    call.deliver(0, Frame(RESULT, [0, None], b""))
    killed = Fate("died", signal=9)
    call.lose([Loss(2, killed, sent=True)])
    for link in target.links(driver)[:2]:
        link.fate = killed
    error = call._error_of_ranks()
    assert isinstance(error, ProcessDied)
    assert [place.rank for place in (error.place, *error.others)] == [1, 2]
