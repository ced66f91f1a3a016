"""How an agent is started as a process of this machine; as a user sees it: `tests/functional/test_early_agent.py`."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from meshrt.engine import agent_process
from meshrt.engine.agent_process import start_agent, take_early
from meshrt.host.osutil import RUN_VARIABLE
from meshrt.mesh.run_id import next_run_id


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


def test_it_is_taken_once_by_its_program() -> None:
    agent_process._start_early()
    early = agent_process._early
    agent_process._start_early()  # another thread, at the same time: one is enough
    assert early is not None and agent_process._early is early
    run_id = early[1].mark.partition(".")[0]
    try:
        assert take_early("00000000") is None
        assert take_early(run_id) is early[1] and take_early(run_id) is None
    finally:
        early[1].undo()


def test_a_fork_has_none_of_it() -> None:
    agent_process._start_early()
    known = next_run_id()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os._exit(0 if agent_process._early is None and next_run_id() != known else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert agent_process._early is not None and next_run_id() == known
    agent_process._undo_own()
    assert take_early(known) is None
