"""How an agent is started as a process of this machine; as a user sees it: `tests/functional/test_early_agent.py`."""

from __future__ import annotations

import os
import socket

import pytest

from meshrt.engine import agent_process
from meshrt.engine.agent_process import start_agent, take_early
from meshrt.host.osutil import RUN_VARIABLE


def test_it_ends_with_its_link_and_is_marked() -> None:
    agent = start_agent("abc.0")
    try:
        with open(f"/proc/{agent.process.pid}/environ", "rb") as environment:
            assert f"{RUN_VARIABLE}=abc.0".encode() in environment.read().split(b"\0")
        agent.socket.close()
        assert agent.process.wait(30) is not None
    finally:
        agent.undo()


def test_undoing_it_ends_and_reaps_it() -> None:
    agent = start_agent("abc.1")
    agent.undo()
    with pytest.raises(ProcessLookupError):
        os.kill(agent.process.pid, 0)


def test_a_descriptor_of_a_standard_stream_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of sockets has the lowest free numbers, which are those of streams that are closed."""
    end = socket.socket(socket.AF_UNIX)
    monkeypatch.setattr(agent_process, "_STREAMS", end.fileno() + 1)
    moved = agent_process._above_streams(end)
    with moved:
        assert moved.fileno() > agent_process._STREAMS - 1 and end.fileno() == -1
        assert moved.family == socket.AF_UNIX and not moved.get_inheritable()
        assert agent_process._above_streams(moved) is moved


def test_there_is_none_unless_one_was_started_early() -> None:
    assert take_early() is None
