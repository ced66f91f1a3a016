"""The messages that ask an agent for ranks: each fits, and together they say everything once."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.mesh.births import spawn_frames
from meshrt.wire.frames import control_decoder
from meshrt.wire.messages import unpack_control


def asked(
    ranks: list[int], env: dict[int, dict[str, str]], preload: tuple[str, ...] = (), **more: Any
) -> list[dict[str, Any]]:
    """Return the messages as the agent reads them."""
    common = {"t": "spawn", "preload": list(preload), "common_env": {"A": "1"}, **more}
    received = control_decoder().receive_data(b"".join(spawn_frames(common, ranks, env)))
    return [unpack_control(frame.payload) for frame in received]


@pytest.mark.parametrize("preload", [(), ("json",)])
@pytest.mark.parametrize("size", [1, 30_000, 250_000])
@pytest.mark.parametrize("count", [1, 7, 65, 200])
def test_every_rank_is_asked_for_once_with_its_own_environment(count: int, size: int, preload: tuple[str, ...]) -> None:
    ranks = list(range(100, 100 + count))
    env = {rank: {"X": str(rank) * (size // 3)} for rank in ranks}
    messages = asked(ranks, env, preload)
    assert [rank for message in messages for rank in message["ranks"]] == ranks
    assert {int(rank): own for message in messages for rank, own in message["env"].items()} == env
    assert all(message["common_env"] == {"A": "1"} for message in messages)


def test_no_more_messages_than_it_takes() -> None:
    ranks = list(range(150))
    assert [len(message["ranks"]) for message in asked(ranks, {})] == [150]
    assert [len(message["ranks"]) for message in asked(ranks, {}, ("json",))] == [150]
    assert asked([], {}) == []


def test_one_process_preloads_for_all_so_the_last_message_is_marked() -> None:
    ranks = list(range(150))
    env = {rank: {"X": "x" * 20_000} for rank in ranks}
    first, *others, last = [message["more"] for message in asked(ranks, env, ("json",))]
    assert first and all(others) and not last
    assert not any(message["more"] for message in asked(ranks, env))


def test_what_one_rank_cannot_be_told_is_refused_with_its_size() -> None:
    operations = [["debug.breaks", {"breaks": ["x" * 100] * 20_000}]]
    with pytest.raises(UsageError, match=r"rank 3 cannot be told .* 20\d{5} bytes .* the limit is 1048576 bytes"):
        asked([3, 4], {}, operations=operations)
