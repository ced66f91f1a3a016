"""The messages that ask an agent for ranks: each fits, and together they say everything once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.mesh.births import Births, spawn_frames
from meshrt.mesh.record import ActorRecord, MeshRecord
from meshrt.mesh.restarts import Restarts
from meshrt.mesh.spec import MeshSpec
from meshrt.transport.driver import Driver
from meshrt.transport.process import INCARNATION
from meshrt.wire.control import Catalogue
from meshrt.wire.frames import control_decoder
from meshrt.wire.operations import Hold, LogLevels
from meshrt.wire.tree import Spawn
from tests.unit.mesh.root_fakes import FakeAgent, record
from tests.unit.transport.fake_rank import SECRET, FakeTree


def _levels(_record: MeshRecord) -> LogLevels:
    return LogLevels({"": 30})


def asked(
    ranks: list[int],
    env: dict[int, dict[str, str]],
    preload: tuple[str, ...] = (),
    operations: Sequence[tuple[str, Body]] = (),
) -> list[Spawn]:
    """Return the messages as the agent reads them."""
    common = Spawn("m", "mesh", ["n"], [len(ranks)], {"A": "1"}, preload, operations)
    return spawns(spawn_frames(common, ranks, env))


def spawns(frames: list[bytes]) -> list[Spawn]:
    catalogue = Catalogue(Spawn)
    return [catalogue.decode(frame.payload) for frame in control_decoder().receive_data(b"".join(frames))]


@pytest.mark.parametrize("preload", [(), ("json",)])
@pytest.mark.parametrize("size", [1, 30_000, 250_000])
@pytest.mark.parametrize("count", [1, 7, 65, 200])
def test_every_rank_is_asked_for_once_with_its_own_environment(count: int, size: int, preload: tuple[str, ...]) -> None:
    ranks = list(range(100, 100 + count))
    env = {rank: {"X": str(rank) * (size // 3)} for rank in ranks}
    messages = asked(ranks, env, preload)
    assert [rank for message in messages for rank in message.ranks] == ranks
    assert {int(rank): own for message in messages for rank, own in message.env.items()} == env
    assert all(message.common_env == {"A": "1"} for message in messages)


def test_no_more_messages_than_it_takes() -> None:
    ranks = list(range(150))
    assert [len(message.ranks) for message in asked(ranks, {})] == [150]
    assert [len(message.ranks) for message in asked(ranks, {}, ("json",))] == [150]
    assert asked([], {}) == []


def test_one_process_preloads_for_all_so_the_last_message_is_marked() -> None:
    ranks = list(range(150))
    env = {rank: {"X": "x" * 20_000} for rank in ranks}
    first, *others, last = [message.more for message in asked(ranks, env, ("json",))]
    assert first and all(others) and not last
    assert not any(message.more for message in asked(ranks, env))


def test_what_an_agent_reads_has_as_many_ranks_as_a_list_may_have() -> None:
    """It would end, with all that runs there, if it was sent more."""
    most = list(range(65536))
    assert [rank for message in asked(most, {}) for rank in message.ranks] == most
    with pytest.raises(UsageError, match="65537 ranks of one mesh on one host; the limit is 65536"):
        asked([*most, 65536], {})


def test_what_one_rank_cannot_be_told_is_refused_with_its_size() -> None:
    operations = [("debug.breaks", {"breaks": ["x" * 100] * 20_000})]
    with pytest.raises(
        UsageError, match=r"rank 3 cannot be started with this .* 20\d{5} bytes .* the limit is 1048576 bytes"
    ):
        asked([3, 4], {}, operations=operations)


def test_a_rank_that_is_started_again_is_told_so_and_what_it_has_no_more() -> None:
    driver, restarts = Driver(SECRET, FakeTree()), Restarts()
    mesh = record(driver, FakeAgent())
    for name, rank in {"again": 1, "gone": 1, "elsewhere": 0}.items():
        mesh.actors[name] = ActorRecord()
        mesh.actors[name].told(rank, here=rank == 0)
    restarts.allow("m", [1], "again", 1, ("", 0))
    births = Births([lambda: [Hold(True)]], restarts, _levels)
    spec = MeshSpec.make("", {"n": 2}, {"A": "1"}, None, ())
    answers: list[Spawn] = []
    for incarnation in (0, 2):
        mesh.incarnations = {1: incarnation} if incarnation else {}
        answers += spawns(births.frames(spec, mesh, [1]))
    driver.close()
    first, again = answers
    assert (first.mesh, first.ranks, first.common_env, first.env) == ("m", [1], {"A": "1"}, {})
    levels = ("log-levels", {"levels": {"": 30}, "disabled": 0})
    assert first.operations == [("hold", {"held": True}), levels]
    assert again.env == {"1": {INCARNATION: "2"}}
    assert again.operations == [("hold", {"held": True}), levels, ("stopped", {"actors": ["gone"]})]


def test_a_device_is_the_place_among_the_ranks_of_the_host() -> None:
    driver = Driver(SECRET, FakeTree())
    mesh = record(driver, *(FakeAgent(host) for host in "abc"), count=7)
    spec = MeshSpec.make("", {"n": 7}, None, None, (), devices="own")
    mesh.incarnations = {5: 1}  # one that is started again alone keeps its device
    asked_for = [*spawns(Births([], Restarts(), _levels).frames(spec, mesh, range(7)))[0].env.values()]
    alone = spawns(Births([], Restarts(), _levels).frames(spec, mesh, [5]))[0].env
    driver.close()
    assert [env["CUDA_VISIBLE_DEVICES"] for env in asked_for] == ["0", "1", "2", "0", "1", "0", "1"]
    assert [mesh.agent_of[rank].host for rank in range(7)] == ["a", "a", "a", "b", "b", "c", "c"]
    assert alone == {"5": {"CUDA_VISIBLE_DEVICES": "0", INCARNATION: "1"}}
