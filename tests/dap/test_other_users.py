"""What another user of the machine, and one who has got hold of a token, can do at the port of an IDE: nothing."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.commandline.shell import run_words
from meshrt.debug.dap.router.launch_json import adapter_entry
from tests.dap import attacker
from tests.dap.client import Client, RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.support.others import NOBODY
from tests.support.programs import environment

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="acting as another user needs root")

WAIT = 30.0
#: What one learns who is refused before anything is read.
NOTHING = ("b''", "ConnectionResetError", "BrokenPipeError")


@contextlib.contextmanager
def another_user(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of another user, which leaves when its standard input ends."""
    words = [sys.executable, attacker.__file__, *map(str, arguments)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(), cwd="/"
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(WAIT)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def attached_by_another_user(port: int, token: str) -> str:
    with another_user("attach", port, token) as process:
        return line_of(process)


@pytest.mark.slow
@pytest.mark.row("D5")
def test_a_port_that_another_user_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It learns a token that is worth nothing, then or later; and what listens at another port takes none of its."""
    trainer = proc_mesh(n=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router("--port", "0", "--write-launch-json", str(tmp_path)) as served:
        before = served.configuration
    port = before["connect"]["port"]
    with another_user("squat", port) as squatter:
        assert line_of(squatter) == "listens"
        # The user's launch.json is as meshrt dap has left it.
        with pytest.raises(RequestFailed, match="try again"):
            Ide(("127.0.0.1", port), before).attach()
        learnt = json.loads(line_of(squatter))["meshToken"]
        assert learnt == before["meshToken"]
        # The user is told who has the port, and nothing is written that leads there.
        written = (tmp_path / ".vscode" / "launch.json").read_bytes()
        again = [str(os.getpid()), "--port", str(port), "--write-launch-json", str(tmp_path)]
        assert run_words(["dap", *again]) == 1
        assert f"by another user (uid {NOBODY}): attach no IDE to it" in capsys.readouterr().err
        assert (tmp_path / ".vscode" / "launch.json").read_bytes() == written

    refused = f"an IDE was refused: the peer is a process of another user (uid {NOBODY})"
    with router(complaint=refused) as served:
        port = served.configuration["connect"]["port"]
        # Another user is told nothing, whatever it knows.
        for token in (learnt, served.token):
            assert attached_by_another_user(port, token) in NOTHING
        # Nor has the token a use for a process of the user's, as one behind a tunnel is.
        client = Client(served.address)
        with pytest.raises(RequestFailed, match="meshToken is not the token of this meshrt dap"):
            client.request("attach", meshToken=learnt)
        client.close()

        # A flood of connections cuts nobody off, not those either that have shown nothing yet.
        waiting = Client(served.address)
        waiting.request("initialize", adapterID="debugpy")
        with another_user("flood", port, 100) as flood:
            assert line_of(flood) == "floods"
            with pytest.raises(RequestFailed, match="threads was sent before attach"):
                waiting.request("threads")
            waiting.close()
            with served.ide() as ide:
                (rank,) = ide.children(1)
                call = trainer.stop_here.call_one()
                ide.stopped()
                assert rank.evaluate("here") == "0"
                ide.continue_all()
                assert call.get(WAIT) == 0
                ide.disconnect()


@pytest.mark.row("D5")
def test_a_router_of_another_user_is_told_nothing() -> None:
    """What an IDE starts for a rank speaks to a router of this user alone, wherever it is led to."""
    with tempfile.TemporaryDirectory(prefix="mt", dir="/tmp") as directory:
        os.chmod(directory, 0o777)
        path = f"{directory}/dap-1"
        adapter = adapter_entry()
        words = [adapter["debugAdapterPython"], adapter["debugAdapterPath"]]
        with another_user("squat", path) as squatter, contextlib.closing(Client(words)) as client:
            assert line_of(squatter) == "listens"
            with pytest.raises(RequestFailed, match=f"{path} is served by another user"):
                client.request("attach", meshSocket=path)
            assert squatter.stdin is not None
            squatter.stdin.close()
            assert line_of(squatter) == ""
