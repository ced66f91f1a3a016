"""Whose file is whose: a process's own, and that of what it starts."""

from __future__ import annotations

import faulthandler
import os
from pathlib import Path

import pytest

from meshrt.transport.directories import ERROR_FILE
from meshrt.transport.launcher import FAULT_FILE, children_file, give_back, launcher_file, take


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "error.json"))
    return tmp_path / "error.json"


def test_the_environment_names_another_one_for_children(file: Path) -> None:
    others = file.with_name("error.children.json")
    assert take() and not take()
    assert (launcher_file(), children_file(), os.environ[ERROR_FILE]) == (file, others, str(others))
    file.write_text("mine")
    others.write_text("theirs")
    give_back()
    assert (os.environ[ERROR_FILE], file.read_text(), others.read_text()) == (str(file), "mine", "theirs")


def test_what_others_said_is_left_to_the_launcher_if_nothing_else_was(file: Path) -> None:
    assert take()
    Path(os.environ[ERROR_FILE]).write_text("theirs")
    give_back()
    assert file.read_text() == "theirs"
    give_back()


def test_a_fork_is_a_child(file: Path) -> None:
    assert take()
    own = launcher_file()
    pid = os.fork()
    if pid == 0:
        theirs = launcher_file()
        give_back()
        os._exit(0 if theirs is not None and theirs != own and os.environ[ERROR_FILE] == str(theirs) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    give_back()


@pytest.mark.parametrize("value", [None, ""])
def test_there_is_no_launcher(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ERROR_FILE, raising=False)
    if value is not None:
        monkeypatch.setenv(ERROR_FILE, value)
    assert not take() and launcher_file() is None and children_file() is None
    give_back()


def test_only_the_child_of_who_waits_for_a_crash_writes_there(monkeypatch: pytest.MonkeyPatch) -> None:
    enabled: list[int] = []
    monkeypatch.setattr(faulthandler, "enable", lambda file, all_threads: enabled.append(file))
    monkeypatch.setenv(FAULT_FILE, f"7:{os.getppid()}")
    take()
    assert FAULT_FILE not in os.environ
    monkeypatch.setenv(FAULT_FILE, f"7:{os.getpid()}")
    take()
    assert enabled == [7]
