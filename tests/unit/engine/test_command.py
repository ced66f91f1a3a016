"""Agents that a command starts: what is said of those that do not join."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.engine.command import CommandEngine, ssh
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Request
from meshrt.transport.link import Link

#: What a mesh asks for that takes all hosts.
ALL = Request(None, 6)


class Invitation:
    """Of an agent that never comes."""

    machine = 5

    def text(self) -> bytes:
        return b"who reads this may join\n"

    def accept(self, seconds: float) -> Link | None:
        return None

    def withdraw(self) -> None:
        """It never comes."""


class Program:
    run_id = "cafe"
    directory = b"/d"

    def __init__(self) -> None:
        self.said: list[str] = []

    def new_mark(self) -> str:
        return "cafe.1"

    def announce(self, text: str) -> None:
        self.said.append(text)

    def invite(self) -> Any:
        return Invitation()


def test_one_that_ends_at_once_has_its_last_words_in_the_error() -> None:
    engine = CommandEngine(("n1",), (("sh", "-c", "read line; echo no such machine: $line >&2; exit 3", "-"),))
    with pytest.raises(
        SpawnError, match="n1 has ended before it joined, with exit status 3: no such machine: who reads"
    ):
        engine.place(Program(), ALL, [])


def test_one_that_does_not_come_is_ended_with_all_others() -> None:
    commands = (("sh", "-c", "exec sleep 60"),) * 2
    engine = CommandEngine(("n1", "n2"), commands, seconds=0.1)
    with pytest.raises(SpawnError, match=r"n1 has not joined in time: 0 of 2 hosts .* waiting .*; seconds= .* 0\.1$"):
        engine.place(Program(), ALL, [])


def test_what_is_waited_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.mesh.progress._FIRST", 0.01)
    commands = (("sh", "-c", "exec sleep 60"),) * 2
    program = Program()
    with pytest.raises(SpawnError):
        CommandEngine(("n1", "n2"), commands, seconds=2).place(program, ALL, [])
    assert program.said[0] == "0 of 2 hosts have joined after 0 s; waiting for n1, n2"


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(SpawnError, match="no/such/program"):
        CommandEngine(("n1",), (("/no/such/program",),)).place(Program(), ALL, [])


def test_hosts_and_commands_belong_together() -> None:
    with pytest.raises(SpawnError, match="hosts: 2, commands: 1; expected a command for each"):
        CommandEngine(("n1", "n2"), (("ssh", "n1"),)).place(Program(), ALL, [])


def test_what_ssh_is_told() -> None:
    engine = ssh("n1", "n2", python="/opt/python", options=["-p", "2222"], seconds=300)
    assert engine.hosts == ("n1", "n2") and engine.python == "/opt/python" and engine.seconds == 300
    assert ssh("n1").seconds == 60
    assert engine.commands[1] == ("ssh", "-o", "BatchMode=yes", "-p", "2222", "n2")


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_hosts_are_waited_for(seconds: float) -> None:
    with pytest.raises(UsageError, match="seconds is a positive number, not "):
        ssh("n1", seconds=seconds)


class Running:
    """An agent that lives."""

    def __init__(self, host: str) -> None:
        self.host = host


def test_agents_that_live_are_returned_and_a_small_mesh_takes_the_first_hosts() -> None:
    never = (("no such program",),) * 3
    n1, n2 = Running("n1"), Running("n1")
    living: Any = [n1, n2]
    assert [*CommandEngine(("n1", "n1", "n2"), never).place(Program(), Request(2, 4), living)] == living
    with pytest.raises(SpawnError, match="n2 cannot be started"):
        CommandEngine(("n1", "n1", "n2"), never).place(Program(), ALL, living)


def test_an_agent_is_started_by_name_where_it_is_not_at_its_path() -> None:
    shell = """case "$*" in *-m\\ meshrt.engine.agent_main*) read line; echo by name: $line >&2;;
    *) echo "python: can't open file" >&2; exit 2;; esac"""
    with pytest.raises(SpawnError, match="exit status 0: by name: who reads this may join"):
        CommandEngine(("n1",), (("sh", "-c", shell, "-"),)).place(Program(), ALL, [])
