"""What is advised where an actor runs: nothing that is refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from meshrt.debug import advice
from meshrt.debug.advice import FIRST_ONLY, how_to_stop
from meshrt.errors import MeshError
from meshrt.hooks.facts import EndpointCall
from tests.unit.debug.fakes import FakeRank
from tests.unit.debug.rank.test_evaluate import Thing, evaluate
from tests.unit.debug.root_fakes import FakeRoot


@pytest.mark.parametrize(
    ("first", "thread", "every", "how"),
    [
        (True, False, False, "interrupt a ranks(1)"),
        (False, False, True, "interrupt a ranks(1)"),
        (True, True, True, "interrupt a ranks(1)"),
        (False, False, False, "break a.ENDPOINT ranks(1) (at its next call)"),
        (True, True, False, "breakpoint() in its code"),
    ],
)
def test_what_stops_an_actor(first: bool, thread: bool, every: bool, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "FIRST_ONLY", "" if every else "the first one only")
    assert how_to_stop("a", "ranks(1)", first=first, thread=thread) == how


def test_it_follows_from_the_version() -> None:
    assert bool(FIRST_ONLY) is (sys.version_info < (3, 12))
    assert how_to_stop("a", "", first=True) == "interrupt a"


@pytest.mark.parametrize(("actor", "how"), [("first", "interrupt first"), ("second", "break second.ENDPOINT")])
def test_attach_does_not_advise_what_is_refused(actor: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "FIRST_ONLY", "the first one only")
    root = FakeRoot(("m1", "", {"n": 2}, ("first", "second")))
    with pytest.raises(MeshError) as caught:
        root.ask(root.terminal(), "debug.attach", actor=actor, rank="1")
    assert f"{actor} rank 1 is not stopped; to stop it: {how} ranks(1)" in str(caught.value)


def test_an_expression_does_not_advise_what_is_refused(rank: FakeRank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "FIRST_ONLY", "the first one only")
    call: Any = EndpointCall("m1", "thing", 0, "work", [])
    rank.services.calls[0] = call  # a thread that is not the main one
    rank.services.instances["thing"] = Thing()
    said = evaluate(rank, "nothing", label="thing@left", ranks="ranks(0)").text
    assert said.endswith("for locals: break thing@left.ENDPOINT ranks(0) (at its next call))")
