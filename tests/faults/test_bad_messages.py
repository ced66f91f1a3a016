"""A message that its receiver cannot use costs its sender, and nobody else."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import msgpack
import pytest

import meshrt
from meshrt import ProcessDied, proc_mesh
from meshrt.errors import ProtocolError
from meshrt.transport.process import current_runtime
from meshrt.wire.control import control_frame
from meshrt.wire.frames import pack_header
from meshrt.wire.messages import CONTROL
from meshrt.wire.tree import Answer
from tests.faults.actors import Victim
from tests.faults.watch import LONG, agents
from tests.support.asking import Question

pytestmark = pytest.mark.one_program


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


#: What a rank sends to its agent, and what the error of its callers says was expected.
BAD: list[tuple[Any, str]] = [
    ({"t": "no such"}, "expected one of dropped, ev, hint, later, leaving, no, ok, op, pong"),
    ({"t": "hint"}, "missing required field `text`"),
    ({"t": "hint", "text": 5}, "Expected `str`, got `int` - at `$.text`"),
    ({"t": "ev", "ev": "unhandled"}, "missing required field `body`"),
    ({"t": "ev", "ev": ["unhandled"], "body": {}}, "Expected `str`, got `array` - at `$.ev`"),
    ({"t": "ok", "id": "1", "body": {}}, "Expected `int`, got `str` - at `$.id`"),
    ({"t": "ok", "id": -1, "body": [1]}, "Expected `object | null`, got `array` - at `$.body`"),
    ({"t": "op", "id": 1, "op": "mesh.watch", "body": [1]}, "Expected `object | null`, got `array` - at `$.body`"),
    ({"t": "dropped", "events": {"gone": 1}}, "expected some of unhandled"),
    ({"t": "ev", "ev": "held", "body": {"held": nested(1010)}}, "cannot be encoded"),
    ({"no": "type"}, "without a type"),
    (["no map"], "without a type"),
    (b"\xc1", "not msgpack"),
]


def send_control(payload: bytes) -> None:
    """Send what no code of this project sends, on the link to the agent, and wait for what comes of it."""
    tree: Any = current_runtime().tree
    tree.control._link.send([pack_header(CONTROL, None, len(payload)) + payload])
    threading.Event().wait()


def packed(message: Any) -> bytes:
    return message if isinstance(message, bytes) else pack_deep(message)


def pack_deep(message: Any) -> bytes:
    """Encode also what msgpack does not want to encode."""
    if isinstance(message, dict):
        items = [msgpack.packb(key) + pack_deep(value) for key, value in message.items()]
        return bytes([0x80 | len(items)]) + b"".join(items)
    if isinstance(message, list) and len(message) < 2:
        depth = 0
        while message and isinstance(message[0], list):
            message, depth = message[0], depth + 1
        return b"\x91" * depth + bytes(msgpack.packb(message))
    return bytes(msgpack.packb(message))


def test_a_bad_control_message_ends_the_rank_that_sent_it_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # Or else the wait for one call is told of the ranks that others wait for.
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)
    victims = proc_mesh(n=len(BAD) + 1).spawn("victim", Victim).get(LONG)
    (agent,) = agents()
    calls = [
        victims.slice(n=rank).apply.call_one(send_control, packed(message)) for rank, (message, _) in enumerate(BAD)
    ]
    for call, (message, expected) in zip(calls, BAD, strict=True):
        error = call.exception(LONG)
        assert isinstance(error, ProcessDied), message
        assert "ProtocolError" in str(error) and expected in str(error), message
    assert victims.slice(n=len(BAD)).echo.call_one(1).get(LONG) == 1
    assert agents() == [agent]


def test_an_answer_that_no_envelope_can_take_is_refused() -> None:
    """It is nested as deep as a rank may send, and the agent puts it into a message of its own."""
    mesh = proc_mesh(n=2, setup=answer_deep)
    victims = mesh.spawn("victim", Victim).get(LONG)
    (agent,) = agents()
    refused = Question("test.deep").wait()
    assert sorted(rank for group in refused for rank in group.ranks) == [0, 1]
    assert all(group.kind == "refused" and "cannot be encoded" in group.same for group in refused)
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    assert agents() == [agent]


def answer_deep() -> None:
    tree: Any = current_runtime().tree
    answer = deepest()
    tree.operations["test.deep"] = lambda _body: {"same": answer}


def deepest() -> list[Any]:
    """Return the list that is nested as deep as an answer can be."""
    for depth in range(1100, 0, -1):
        with contextlib.suppress(ProtocolError):
            control_frame(Answer(-1, {"same": nested(depth)}))
            return nested(depth)
    raise AssertionError("no list can be encoded")
