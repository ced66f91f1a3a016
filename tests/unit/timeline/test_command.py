"""Where a recording may be written to, asked before anything is recorded; and how a person ends it."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.timeline import command
from meshrt.timeline.collected import Collected, RankTrack
from meshrt.transport.tools import Program
from meshrt.transport.writing import check_place


def test_what_a_link_points_to_is_asked_for(tmp_path: Path) -> None:
    link = tmp_path / "out.json"
    link.symlink_to("none/out.json")
    with pytest.raises(UsageError, match=f"there is no directory {tmp_path / 'none'}"):
        check_place(link)
    (tmp_path / "none").mkdir()
    check_place(link)


def test_what_is_no_file_needs_no_directory_to_write_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    allowed = {fifo}
    monkeypatch.setattr(os, "access", lambda path, _mode: path in allowed)
    check_place(fifo)
    allowed.clear()
    with pytest.raises(UsageError, match="permission denied"):
        check_place(fifo)


class Begun:
    """A recording of nothing that has begun."""

    def __init__(self, _program: Program) -> None:
        self.collected = Collected()
        self.closed = threading.Event()

    def begin(self, _ranks: str) -> int:
        return 1

    def fetch(self, *, everybody: bool = False) -> bool:
        return False

    def end(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_ctrl_c_ends_a_recording_as_soon_as_it_is_said_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(_text: str) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "Session", Begun)
    monkeypatch.setattr(sys.stderr, "write", said)
    program = Program("r", 1, ["train.py"], "/", 0.0, tmp_path, tmp_path)
    assert command._record(program, tmp_path / "out.json", 10.0, "") == 0
    assert "traceEvents" in json.loads((tmp_path / "out.json").read_text())


class Stopped(Begun):
    """A recording of a program that is stopped by a signal once a part of a rank has come."""

    def fetch(self, *, everybody: bool = False) -> bool:
        self.collected.tracks[7] = RankTrack(7, "m", 0, "mesh1 rank 0", "node0")
        raise TimeoutError("no answer to timeline.take within 30 s")


def test_what_was_recorded_is_kept_if_the_program_does_not_answer_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "Session", Stopped)
    program = Program("r", 1, ["train.py"], "/", 0.0, tmp_path, tmp_path)
    assert command._record(program, tmp_path / "out.json", 10.0, "") == 0
    assert "until the program stopped answering" in capsys.readouterr().out
    assert "mesh1 rank 0" in (tmp_path / "out.json").read_text()
