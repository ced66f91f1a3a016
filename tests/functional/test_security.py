"""Who can reach a program: nobody over the network, and no other user over the file system."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import psutil
import pytest

from meshrt import UsageError, proc_mesh
from tests.support.actors import Echo


def test_no_port_is_open_and_no_network_socket_is_made() -> None:
    mesh = proc_mesh(n=2)
    mesh.spawn("echo", Echo).rank.call().get(20)
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    assert len(family) >= 4
    assert [connection for process in family for connection in process.net_connections("inet")] == []


def test_the_runtime_directory_is_private_and_its_files_too() -> None:
    proc_mesh(n=2).spawn("echo", Echo).rank.call().get(20)
    base = Path(os.environ["MESHRT_RUNTIME_DIR"])
    (program,) = base.iterdir()
    for folder in (base, program):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((program / "tools.token").stat().st_mode) == 0o600
    assert {"tools", "tools.token", "program.json"} < {path.name for path in program.iterdir()}


def test_a_runtime_directory_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "r"
    base.mkdir(mode=0o755)
    base.chmod(0o755)
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(base))
    with pytest.raises(UsageError, match=r"is open to other users \(mode 755\)"):
        proc_mesh(n=1)


def test_a_stranger_on_a_socket_is_cut_off_and_disturbs_nobody() -> None:
    echo = proc_mesh(n=1).spawn("echo", Echo)
    echo.rank.call().get(20)
    (program,) = Path(os.environ["MESHRT_RUNTIME_DIR"]).iterdir()
    paths = [path for path in program.iterdir() if path.is_socket()]
    assert len(paths) == 3, "of the rank, of the store and for terminals"
    for path in paths:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4000, b"meshrt\x00\x01" + b"\xff" * 300):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
                stranger.settimeout(20)
                stranger.connect(str(path))
                stranger.sendall(data)
                answer = b"x"
                while answer:
                    try:
                        answer = stranger.recv(4096)
                    except ConnectionResetError:
                        break
    assert echo.rank.call().get(20).values() == [0]
