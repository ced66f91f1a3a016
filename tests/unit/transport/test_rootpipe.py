"""The pipe that ends with the root: it does not grow, and who watches an earlier one hears of the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from meshrt.transport.rootpipe import RootPipe, open_root_pipe, signal_at_end
from tests.support.waiting import wait_until


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.row("L1")
def test_a_pipe_that_is_removed_again_and_again_takes_no_more_descriptors(tmp_path: Path) -> None:
    pipe = RootPipe(tmp_path)
    watched = open_root_pipe(tmp_path)
    with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"]) as process:
        own = signal_at_end(watched, signal.SIGKILL, process.pid)
        assert own is not None
        os.close(watched)
        for _ in range(3):
            pipe.path.unlink()
            pipe.make()
        before = descriptors()
        for _ in range(20):
            pipe.path.unlink()
            pipe.make()
        assert len(descriptors()) == len(before)
        late = open_root_pipe(tmp_path)
        with pytest.raises(BlockingIOError):
            os.read(late, 1)
        assert process.poll() is None
        pipe.close()
        wait_until(lambda: process.poll() is not None, 20, "the first of the pipes has ended, too")
        assert process.returncode == -signal.SIGKILL
        assert os.read(late, 1) == b""
        os.close(late)
        os.close(own)


def test_a_pipe_whose_end_was_missed_is_seen_to_have_ended(tmp_path: Path) -> None:
    pipe = RootPipe(tmp_path)
    late = open_root_pipe(tmp_path)
    pipe.close()
    assert signal_at_end(late, signal.SIGCONT, os.getpid()) is None
    os.close(late)
