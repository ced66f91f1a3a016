"""Who may attach, and what becomes of the others."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.commandline.shell import run_words
from meshrt.debug.dap.wire import MessageDecoder, encode
from tests.dap.client import Client, RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.support.waiting import holds_within

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
ATTACH = {"seq": 1, "type": "request", "command": "attach", "arguments": {}}


def connected(address: object) -> socket.socket:
    assert isinstance(address, tuple)
    return socket.create_connection(address, WAIT)


def test_a_port() -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router(complaint="an IDE was refused: ") as served:
        token = served.token
        for sent in (
            b"GET / HTTP/1.1\r\n\r\n",
            # What a browser sends for a page: the body would be an attach request.
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + encode(ATTACH),
            b"\0" * 5000,
            b"Content-Length: 99999999\r\n\r\n",
            b"Content-Length: 2\r\n\r\n[]",
        ):
            with connected(served.address) as sock:
                sock.sendall(sent)
                assert holds_within(WAIT, lambda sock=sock: not sock.recv(1)), sent  # type: ignore[misc]

        client = Client(served.address)
        assert client.request("initialize", adapterID="debugpy")["supportsLogPoints"]
        with pytest.raises(RequestFailed, match="threads was sent before attach"):
            client.request("threads")
        with pytest.raises(RequestFailed, match='"request": "attach"'):
            client.request("launch")
        client.close()

        for more, said in (
            ({}, "meshToken is missing; each start of meshrt dap makes a new token"),
            ({"meshToken": token[:-1]}, "meshToken is not the token of this meshrt dap; each start"),
            ({"meshToken": 5}, "meshToken is missing"),
            ({"meshToken": token, "meshRank": ["mesh9", 0]}, "rank 0 was stopped"),
            ({"meshToken": token, "meshRank": 0}, "meshRanks chooses ranks"),
            ({"meshToken": token, "subProcessId": [77]}, r"no rank has the number \[77\]"),
            ({"meshToken": token, "meshView": "rows"}, "'sessions'"),
            ({"meshToken": token, "meshRanks": "ranks(7)"}, "7"),
            ({"meshToken": token, "meshName": "trainr"}, "no mesh or actor has the name 'trainr'; there are"),
        ):
            client = Client(served.address)
            with pytest.raises(RequestFailed, match=said):
                client.request("attach", **more)
            assert holds_within(WAIT, lambda client=client: client.ended)  # type: ignore[misc]
            client.close()

        # Half a character is a wrong token.
        with connected(served.address) as sock:
            text = encode({"seq": 1, "type": "request", "command": "attach", "arguments": {"meshToken": "\ud800"}})
            sock.sendall(text)
            (refusal,) = MessageDecoder().receive_data(sock.recv(1 << 16))
            assert not refusal["success"] and "meshToken is not" in refusal["message"]

        # None of them was one too many.
        with served.ide(start_debugging=False) as ide:
            ide.children(1)
            # Where an IDE keeps keys of debugpy alone, a number says which rank is meant.
            client = Client(served.address)
            with pytest.raises(RequestFailed, match="an IDE is already attached to rank 0, through another window"):
                client.request("attach", meshToken=token, subProcessId=1)
            client.close()


@pytest.mark.slow
def test_a_socket_of_this_user(tmp_path: Path) -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    path = tmp_path / "ide"
    with router("--socket", str(path)):
        assert path.is_socket()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    with router("--socket", str(path)) as served:
        assert path.stat().st_mode & 0o777 == 0o600
        with served.ide() as ide:
            (rank,) = ide.children(1)
            call = trainer.stop_here.call_one()
            ide.stopped()
            # Ctrl-C: what stands goes on, and every session is told.
            served.process.terminate()
            assert call.get(WAIT) == 0
            assert served.process.wait(WAIT) == 0
            ide.root.wait_over()
            rank.wait_over()
    assert not path.exists()


def test_a_place_that_cannot_be_had(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proc_mesh(n=1).initialized.get(WAIT)
    (tmp_path / "file").touch()
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "launch.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for arguments, code, complaint in (
            (
                ["--socket", "ide", "--write-launch-json"],
                2,
                "an entry of launch.json contains a port; an entry for a unix socket is not",
            ),
            (
                ["--socket", "ide", "--no-serve"],
                2,
                "an entry of launch.json contains a port; an entry for a unix socket is not",
            ),
            (["--socket", str(tmp_path / "file")], 2, "file is not a socket"),
            (["--socket", str(tmp_path / "nowhere" / "ide")], 2, "cannot be created: there is no directory"),
            (
                ["--socket", str(tmp_path / ("x" * 120))],
                1,
                f"cannot listen at {tmp_path / ('x' * 120)}: AF_UNIX path too long",
            ),
            (["--port", "0", "--write-launch-json", str(tmp_path)], 2, "is not a launch.json (Expecting"),
            (
                ["--port", str(port)],
                1,
                f"cannot listen at port {port}: Address already in use; --port 0 chooses a free port",
            ),
        ):
            assert run_words(["dap", str(os.getpid()), *arguments]) == code, arguments
            said = capsys.readouterr()
            assert complaint in said.err and not said.out, arguments
