"""What processes tell ``meshrt attach``, and what is left of its folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from meshrt.spmd.telling import Folder

TELL = """\
import socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
sock.connect(sys.argv[1])
for line in sys.argv[2:]:
    sock.sendall(line.encode() + b"\\n")
input()
"""


@contextmanager
def telling(teller: str, *lines: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", TELL, teller, *lines], stdin=subprocess.PIPE) as process:
        yield process
        process.communicate(b"\n")


@pytest.mark.parametrize(
    ("lines", "found"),
    [(("here", "joined"), ("joined", "")), (("here", "failed: no room: 7"), ("failed", "no room: 7"))],
)
def test_what_is_told(lines: tuple[str, ...], found: tuple[str, str], tmp_path: Path) -> None:
    with Folder(tmp_path) as folder, telling(folder.teller, *lines) as process:
        folder.write(process.pid, "")
        folder.expect(process.pid)
        assert folder.wait(30) == {process.pid: found}
        folder.script(process.pid).unlink()
    assert not os.listdir(tmp_path)


def test_one_that_ends_before_it_has_joined(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder, telling(folder.teller, "here") as process:
        folder.expect(process.pid)
        threading.Timer(0.5, process.kill).start()
        assert folder.wait(30) == {process.pid: ("failed", "it has ended")}


def test_one_that_says_nothing_keeps_its_script(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        own = folder.write(os.getpid(), "pass")
        other = folder.write(1, "pass")
        folder.expect(os.getpid())
        assert folder.wait(0.1) == {}
    assert own.read_text() == "pass" and own.stat().st_mode & 0o777 == 0o600
    assert not other.exists()
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(folder.teller)


def test_what_was_left_for_processes_that_have_ended_is_removed(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name, pid in (("attach-old", ended.pid), ("attach-late", os.getpid()), ("p-other", ended.pid)):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{pid}.py").touch()
        os.utime(tmp_path / name, (1000, 1000))
    with Folder(tmp_path):
        pass
    assert sorted(os.listdir(tmp_path)) == ["attach-late", "p-other"]
