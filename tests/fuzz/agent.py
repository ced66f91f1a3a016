"""What the host agent, and its ranks through it, tell the root."""

from __future__ import annotations

import logging
import socket
from typing import Any

import msgpack

from meshrt.mesh.agents import AgentLink
from meshrt.wire.frames import pack_header
from meshrt.wire.messages import CONTROL
from meshrt.wire.tree import FROM_AGENT, FROM_RANK, FromAgent, FromRank
from tests.fuzz.examples import examples_of
from tests.fuzz.mutating import packed
from tests.fuzz.running import BAIT, Target
from tests.fuzz.wire import CONTROL_EXAMPLES
from tests.support.agents import an_agent
from tests.support.loops import ManualLoop

__all__ = ["TARGETS"]


def _tell(data: bytes) -> None:
    """What reaches the root is of a known type; whoever sends anything else is ended, and told to be gone once."""
    try:
        told = msgpack.unpackb(data, strict_map_key=False)
    except Exception:
        told = None
    frames = [_frame(*each) for each in told if isinstance(each, list) and len(each) == 2] if type(told) is list else []
    ours, theirs = socket.socketpair()
    killed: list[bool] = []
    gone: list[AgentLink] = []
    placed = an_agent(ours, kill=lambda: killed.append(True))

    def of_agent(_link: AgentLink, message: object) -> None:
        assert isinstance(message, FromAgent) and not gone

    def of_rank(address: Any, message: object) -> None:
        mesh, rank = address
        assert isinstance(message, FromRank) and type(mesh) is str and type(rank) is int and not gone

    failures: list[logging.LogRecord] = []
    noted, log = logging.Handler(logging.ERROR), logging.getLogger("meshrt")
    noted.emit = lambda record: failures.append(record) if record.exc_info else None  # type: ignore[method-assign]
    propagates, log.propagate = log.propagate, False
    log.addHandler(noted)
    try:
        link = AgentLink(placed, of_agent, of_rank, gone.append, print)
        loop: Any = ManualLoop()
        link.attach(loop)
        with theirs:
            for piece in (*frames[:20], *([] if frames else [data[: 1 << 15]])):
                theirs.sendall(piece)
                loop.readable()
                if gone:
                    break
        loop.readable()
    finally:
        log.removeHandler(noted)
        log.propagate = propagates
    assert len(gone) == 1 and not failures, failures


def _frame(address: Any, message: Any) -> bytes:
    payload = packed(message)
    return pack_header(CONTROL, address, len(payload)) + payload


def _examples() -> list[bytes]:
    of_agent: list[dict[str, Any]] = [
        {"t": "started", "mesh": "m1", "rank": 0, "pid": 4712},
        {"t": "gone", "mesh": "m1", "rank": 0, "fate": {"kind": "died", "host": "here", "pid": 4712}},
        {"t": "stopped", "mesh": "m1"},
        {"t": "output", "mesh": "m1", "rank": 0, "err": False, "lines": [["", "hello"], ["a", "x"]]},
        {"t": "pulse", "mesh": "m1", "rank": 0, "state": "busy", "stack": "x"},
        {"t": "gathered", "id": 1, "groups": [["m1", "answered", [0], {"x": 1}, None]]},
        {"t": "pong"},
        {"t": "warning", "text": "x"},
    ]
    of_rank = [*CONTROL_EXAMPLES, *examples_of(FROM_RANK)]
    of_agent += examples_of(FROM_AGENT)
    told = [*([None, message] for message in of_agent), *([["m1", 0], message] for message in of_rank)]
    return [packed([each, [None, {"t": "pong"}]]) for each in told] + [BAIT]


TARGETS = [Target("agent", _tell, _examples, (), "msgpack", count=1000)]
