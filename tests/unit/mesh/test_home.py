"""The store of the script: that of an agent on its machine, which is started where all agents are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from meshrt.mesh.agents import AgentLink
from meshrt.mesh.home import Home
from meshrt.mesh.loop import RootLoop


@dataclass(eq=False)
class Agent:
    """As far as a home looks at it."""

    pid: int
    machine: int = 0
    host: str = "n1"
    serves: bool = False
    gone: bool = False

    @property
    def link(self) -> AgentLink:
        return cast(AgentLink, self)


@pytest.fixture
def home() -> Home:
    return Home(RootLoop())


def test_an_agent_elsewhere_is_none_and_one_is_started_when_it_is_wanted(home: Home) -> None:
    wanted: list[str] = []
    told: list[int] = []
    home.on_wanted.append(lambda: wanted.append("one"))
    assert home.agent(0.001) == 0 and wanted == [], "there is no program on other machines"
    home.add(Agent(7, machine=5).link)
    home.serves(Agent(7, machine=5).link)
    assert home.agent(0.0) == 0 and wanted == [], "nothing is large"
    home.want(lambda: told.append(home.agent(0.0)))
    assert home.agent(0.001) == 0 and wanted == ["one"]
    started = Agent(8)
    home.add(started.link)
    assert home.agent(0.0) == 0 and told == [], "it does not serve yet"
    home.serves(started.link)
    assert home.agent(0.0) == 8 and told == [8] and home.host_of(8) == "n1"
    home.want(lambda: told.append(0))
    assert told == [8, 0] and wanted == ["one"]


def test_it_cannot_be_started(home: Home) -> None:
    told: list[int] = []
    home.on_wanted.append(lambda: None)
    home.add(Agent(7, machine=5).link)
    home.want(lambda: told.append(home.agent(0.0)))
    home.failed()
    assert told == [0] and home.agent(0.001) == 0, "it is tried again for the next one"


def test_the_next_one_takes_its_place(home: Home) -> None:
    first, second = Agent(7, serves=True), Agent(8, serves=True)
    home.add(first.link)
    home.add(second.link)
    assert home.agent(0.0) == 7
    first.gone = True
    home.remove(first.link)
    assert home.agent(0.0) == 8
    home.remove(second.link)
    second.gone = True
    assert home.agent(0.0) == 0
