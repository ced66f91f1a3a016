"""Which rank is in an IDE, as the root knows it: events of a rank may come before it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from meshrt.debug.dap.held import Held
from meshrt.debug.dap.root import Mediator
from meshrt.errors import MeshError, SelectionError, UsageError
from meshrt.hooks.facts import Body
from meshrt.hooks.fate import Fate
from meshrt.hooks.operations import Data, Operation
from meshrt.selection import Shape, Slice
from tests.unit.debug.root_fakes import FakeRoot, FakeTerminal, MeshOfFake

RANK = ("m1", 3)


class Root(FakeRoot):
    """Its ranks do ``meanwhile`` before they answer, with the number of the channel."""

    def __init__(self, *meshes: MeshOfFake) -> None:
        super().__init__(*meshes)
        self.meanwhile: Callable[[int], None] = lambda _channel: None
        self.asked: list[str] = []
        self.mediator = Mediator(self)
        self.mediator.serve()

    async def ask_rank(self, mesh_id: str, rank: int, operation: Any) -> Any:
        self.asked.append(operation.name())
        self.meanwhile(int(operation.channel))
        return operation.read_answer({})

    def tell_rank(self, mesh_id: str, rank: int, operation: Operation[Data]) -> None:
        self.asked.append(operation.name())

    def open(self, router: FakeTerminal, *, stay: bool = False) -> dict[tuple[str, int], Held]:
        """Have a router open a channel; returns what is held then."""
        body = {"mesh": RANK[0], "rank": RANK[1], "channel": 1, "stay": stay, "session": 1}
        operation = self.tool_operations["dap.open"](router, body)
        asyncio.run(asyncio.wait_for(operation, 10))
        return self.mediator.held


@pytest.fixture
def root() -> Root:
    return Root()


def test_which_ranks_a_name_and_a_selection_denote() -> None:
    view = Shape(("pp",), Slice(offset=1, sizes=(2,), strides=(2,)))
    root = Root(("m1", "left", {"hosts": 2, "gpus": 2}, {"head": view}), ("m2", "right", {"n": 2}, ("other",)))
    root.kill(2, "was killed by SIGKILL")

    def which(mesh: str, ranks: str = "") -> list[tuple[str, int]]:
        found = root.ask(FakeTerminal(), "dap.which", mesh=mesh, ranks=ranks)["ranks"]
        return [(rank["mesh_name"], rank["rank"]) for rank in found]

    assert which("head") == [("left", 1), ("left", 3)] and which("head", "pp=1") == [("left", 3)]
    assert which("left") == which("m1") == [("left", 0), ("left", 1), ("left", 3)]
    assert which("", "1") == [("left", 1), ("right", 1)] and which("", "hosts=0") == [("left", 0), ("left", 1)]
    with pytest.raises(UsageError, match="there are head, left, other, right"):
        which("haed")
    with pytest.raises(SelectionError, match="on ranks 1,3"):
        which("head", "0")


def test_a_rank_is_held_from_its_answer_to_its_end(root: Root) -> None:
    router = FakeTerminal(pid=5)
    assert root.open(router) == {RANK: Held("the IDE of process 5")}
    root.rank_events["dap.closed"](*RANK, {"channel": 1, "why": "x"})
    assert root.mediator.held == {}
    assert router.of("dap.closed") == [{"channel": 1, "why": "x"}]


def test_an_ide_loses_a_rank_that_takes_no_messages(root: Root) -> None:
    router = FakeTerminal(pid=5)
    root.open(router)

    def full(_channel: int) -> None:
        raise MeshError("dap.data was not sent to rank 3: the rank does not read messages")

    send = root.tool_operations["dap.data"]
    asyncio.run(asyncio.wait_for(send(router, {"channel": 1, "data": b"x"}), 10))
    assert root.mediator.held and not router.of("dap.closed")
    root.meanwhile = full
    for _ in range(2):
        asyncio.run(asyncio.wait_for(send(router, {"channel": 1, "data": b"x"}), 10))
    assert router.of("dap.closed") == [
        {"channel": 1, "why": "dap.data was not sent to rank 3: the rank does not read messages"}
    ]
    assert root.asked == ["dap.open", "dap.data", "dap.data", "dap.close"] and root.mediator.held == {}


def test_who_asks_is_told_of_the_ports_of_routers_that_live(root: Root) -> None:
    def ask(operation: str, client: FakeTerminal, **body: object) -> Body:
        answer = asyncio.run(asyncio.wait_for(root.tool_operations[operation](client, body), 10))
        return dict(msgspec.to_builtins(answer))

    router, other = FakeTerminal(), FakeTerminal()
    ask("dap.join", router, port=5678, token="t")
    ask("dap.join", other)
    assert ask("dap.ports", other) == {"ports": [{"port": 5678, "token": "t"}]}
    for gone in root.client_gone:
        gone(router)
    assert ask("dap.ports", other) == {"ports": []}


def test_an_engine_that_ends_before_the_answer_leaves_nothing_held(root: Root) -> None:
    root.meanwhile = lambda channel: root.rank_events["dap.closed"](*RANK, {"channel": channel, "why": "no debugpy"})
    assert root.open(FakeTerminal()) == {}


def test_a_router_that_ends_before_the_answer_leaves_nothing_held(root: Root) -> None:
    router = FakeTerminal()

    def ends(_channel: int) -> None:
        for gone in root.client_gone:
            gone(router)

    root.meanwhile = ends
    assert root.open(router) == {}
    assert root.asked == ["dap.open", "dap.close"]


def test_a_thread_that_stands_before_the_answer_is_known_to_stand(root: Root) -> None:
    place = ["train.py", 7, "step"]
    root.meanwhile = lambda channel: root.rank_events["dap.holds"](
        *RANK, {"channel": channel, "held": True, "places": {"trainer": place}}
    )
    (held,) = root.open(FakeTerminal(pid=5)).values()
    assert held.ide == "the IDE of process 5" and held.since > 0


def holds(root: Root, channel: int, *, held: bool) -> None:
    """The rank says whether it stands."""
    root.rank_events["dap.holds"](*RANK, {"channel": channel, "held": held, "places": {}})


@pytest.mark.parametrize("end", ["goes on", "closed", "gone", "another"])
def test_what_a_lost_ide_leaves_standing_is_known_until_the_rank_says_otherwise(root: Root, end: str) -> None:
    router = FakeTerminal(pid=5)
    root.open(router, stay=True)
    holds(root, 1, held=True)
    for gone in root.client_gone:
        gone(router)
    assert root.asked[-1] == "dap.close"
    (left,) = root.mediator.held.values()
    assert left.lost and "an IDE that has disconnected" in left.ide
    if end == "goes on":
        holds(root, 1, held=False)
    elif end == "closed":
        root.rank_events["dap.closed"](*RANK, {"channel": 1, "why": "the IDE has disconnected"})
    elif end == "gone":
        for told in root.rank_gone:
            told(*RANK, Fate("died", signal=9))
    else:
        root.open(FakeTerminal(pid=6))
        holds(root, 1, held=False)  # it was on its way
        root.rank_events["dap.closed"](*RANK, {"channel": 1, "why": "the IDE has disconnected"})
    assert [(held.ide, held.lost) for held in root.mediator.held.values()] == (
        [("the IDE of process 6", False)] if end == "another" else []
    )


def test_a_stop_that_was_on_its_way_when_the_ide_was_lost_is_known(root: Root) -> None:
    router = FakeTerminal(pid=5)
    root.open(router, stay=True)
    for gone in root.client_gone:
        gone(router)
    assert root.mediator.held == {}  # it ran
    holds(root, 1, held=True)
    (left,) = root.mediator.held.values()
    assert left.lost and left.since
