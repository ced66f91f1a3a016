"""Which ranks are started again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.hooks.fate import Fate
from meshrt.mesh import restarts
from meshrt.mesh.restarts import Restarts

SCRIPT = ("", 0)
DIED = Fate("died", signal=9)


def mesh(**more: Any) -> Any:
    here = SimpleNamespace(machine=0)
    facts = {"mesh_id": "m", "stopped": None, "pids": {0: 1}, "actors_of": {0: ["a"]}.get, "agent_of": [here], **more}
    return SimpleNamespace(**facts)


@pytest.fixture
def asked() -> Restarts:
    made = Restarts()
    made.allow("m", [0], "a", 2, SCRIPT)
    return made


def test_what_is_to_be_started_again(asked: Restarts) -> None:
    assert asked.refuses(mesh(), 0, DIED) is None
    assert asked.begin("m", 0) == {"a"}


@pytest.mark.parametrize(
    ("more", "fate"),
    [
        ({"stopped": object()}, DIED),
        ({"pids": {}}, DIED),
        ({}, Fate("stopped")),
        ({}, Fate("host")),
        ({}, Fate("unborn")),
    ],
)
def test_what_nobody_has_asked_for(asked: Restarts, more: dict[str, Any], fate: Fate) -> None:
    assert asked.refuses(mesh(**more), 0, fate) == ""
    assert asked.refuses(mesh(), 1, DIED) == ""


def test_every_actor_that_lives_there_has_to_be_built_again(asked: Restarts) -> None:
    record = mesh(actors_of={0: ["a", "b"], 1: ["d"]}.get)
    assert asked.refuses(record, 0, DIED) == "it also runs b, which has no max_restarts"
    asked.allow("m", [0], "b", 1, SCRIPT)
    assert asked.refuses(record, 0, DIED) is None


def test_how_often_and_how_soon(asked: Restarts, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.begin("m", 0)
    assert asked.refuses(mesh(), 0, DIED) == "it ended within 5 s of its last restart"
    monkeypatch.setattr(restarts, "APART", 0.0)
    assert asked.refuses(mesh(), 0, DIED) is None
    asked.begin("m", 0)
    assert asked.refuses(mesh(), 0, DIED) == "it was already restarted 2 times"


def test_what_is_over(asked: Restarts) -> None:
    asked.allow("m", [1], "b", 1, ("other", 3))
    asked.forget_spawner(("other", 3))
    assert asked.refuses(mesh(pids={1: 2}), 1, DIED) == ""
    asked.forget_actor("m", 0, "a")
    assert asked.refuses(mesh(), 0, DIED) == ""
    asked.allow("m", [0], "a", 2, SCRIPT)
    asked.forget("m")
    assert asked.refuses(mesh(), 0, DIED) == ""
