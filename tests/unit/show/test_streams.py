"""A command that waits notices that its reader is gone."""

from __future__ import annotations

import io
import os
import threading
import time
from pathlib import Path

import pytest

from meshrt.show.streams import pause


def test_a_wait_ends_when_the_reader_of_a_pipe_is_gone() -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as stream:
        pause(stream, 0.01)
        threading.Timer(0.05, os.close, (reading,)).start()
        began = time.monotonic()
        with pytest.raises(BrokenPipeError):
            pause(stream, 60)
        assert time.monotonic() - began < 30


def test_what_has_no_reader_is_waited_for_as_long_as_said(tmp_path: Path) -> None:
    with open(tmp_path / "out", "w") as file:
        for stream in (file, io.StringIO()):
            began = time.monotonic()
            pause(stream, 0.05)
            assert time.monotonic() - began >= 0.04
