"""Where a recording may be written to: asked before anything is recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.timeline.command import _check


def test_what_a_link_points_to_is_asked_for(tmp_path: Path) -> None:
    link = tmp_path / "out.json"
    link.symlink_to("none/out.json")
    with pytest.raises(UsageError, match=f"there is no directory {tmp_path / 'none'}"):
        _check(link)
    (tmp_path / "none").mkdir()
    _check(link)


def test_what_is_no_file_needs_no_directory_to_write_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    allowed = {fifo}
    monkeypatch.setattr(os, "access", lambda path, _mode: path in allowed)
    _check(fifo)
    allowed.clear()
    with pytest.raises(UsageError, match="no right to"):
        _check(fifo)
