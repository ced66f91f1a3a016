"""Sessions of an IDE that starts ``meshrt dap --stdio`` for each: no port, no token."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from meshrt import proc_mesh
from meshrt.commandline.shell import run_words
from meshrt.debug.dap.router.launch_json import adapter_entry
from meshrt.transport.process import current_runtime
from tests.dap import debugged
from tests.dap.client import Client, RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.support.markers import marked_line
from tests.support.programs import another_program
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
STEP = marked_line(SOURCE, "step")
ENTRY = adapter_entry()
#: As VS Code's extension starts it.
ADAPTER = [ENTRY["debugAdapterPython"], ENTRY["debugAdapterPath"]]


def ide(**more: Any) -> Ide:
    return Ide(ADAPTER, {**ENTRY, **more})


def sockets() -> list[str]:
    """Those that routers listen at, of this program."""
    return [path.name for path in Path(current_runtime().directory).glob("dap-*")]


@pytest.mark.slow
def test_sessions_through_pipes() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with ide() as attached:
        attached.set_breakpoints(SOURCE, [STEP])
        attached.children(2)
        (name,) = sockets()
        path = Path(current_runtime().directory) / name
        assert path.stat().st_mode & 0o777 == 0o600
        call = trainer.step.call(1)
        attached.stopped(2)
        assert set(attached.evaluate("by").values()) == {"1"}
        assert "step" in attached.root.evaluate("where")
        attached.continue_all()
        assert call.get(WAIT).values() == [1, 1]
        attached.disconnect()
        attached.wait_for(lambda: not attached.live, "the end of all sessions")
    assert sockets() == []

    # One that is killed leaves standing what is to stay, for the next one.
    first = ide(meshOnLost="stay")
    with first:
        first.set_breakpoints(SOURCE, [STEP])
        first.children(2)
        call = trainer.step.call(1)
        first.stopped(2)
    with socket.socket(socket.AF_UNIX) as of_one_that_was_killed:
        of_one_that_was_killed.bind(str(Path(current_runtime().directory) / "dap-1"))
    with ide(meshView="threads") as second:
        second.wait_for(lambda: second.root.stop is not None, "a stop")
        assert not call.done()
        second.disconnect()
    assert call.get(WAIT).values() == [2, 2]
    assert sockets() == []


@pytest.mark.nightly
def test_the_program_is_told_or_asked_for() -> None:
    def attach(*words: str, **more: Any) -> str:
        client = Client([*ADAPTER, *words])
        try:
            assert client.request("initialize", adapterID="debugpy")["supportsLogPoints"]
            with pytest.raises(RequestFailed) as caught:
                client.request("attach", **more)
            return str(caught.value)
        finally:
            client.close()

    trainer = proc_mesh(n=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    assert "not a meshrt program" in attach(meshRun="4711000")
    assert "no such file" in attach(meshSocket="/nowhere").lower()
    assert "no mesh or actor has the name 'trainr'" in attach(meshName="trainr")
    with another_program() as other:
        said = attach()
        assert '"meshRun" in launch.json' in said and str(other.pid) in said and str(os.getpid()) in said
        # The end of a program is that of all its sessions.
        with ide(meshRun=other.pid) as attached:
            attached.children(1)
            assert other.stdin is not None
            other.stdin.write("\n")
            other.stdin.flush()
            attached.wait_for(lambda: not attached.live, "the end of all sessions")
            assert "the program has ended" in attached.root.client.output


def test_the_entry_needs_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_words(["dap", "--stdio", "--write-launch-json", str(tmp_path)]) == 0
    assert "launch.json: the entry 'meshrt' attaches" in capsys.readouterr().out
    text = (tmp_path / ".vscode" / "launch.json").read_text()
    assert "meshToken" not in text and "connect" not in text
    for arguments, complaint in (
        (["--stdio", "--write-launch-json", str(tmp_path), "4711"], '"meshRun" in the entry chooses one'),
        (["--stdio", "--port", "5"], "not allowed with argument"),
        (["--stdio"], "an IDE starts meshrt dap --stdio, with pipes as standard input and output; meshrt dap"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "meshrt", "dap", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert done.returncode == 2 and complaint in done.stderr and "Traceback" not in done.stderr


def test_an_ide_that_counts_otherwise() -> None:
    client = Client(ADAPTER)
    with pytest.raises(RequestFailed, match="linesStartAt1 is false, which meshrt dap does not support; expected true"):
        client.request("initialize", adapterID="debugpy", linesStartAt1=False)
    wait_until(lambda: client.ended, WAIT, "its end")
    client.close()


def test_an_ide_that_leaves_before_it_attaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It starts the adapter in whatever folder it has open, and nothing there is run.
    monkeypatch.chdir(tmp_path)
    for name in ("argparse", "asyncio", "json", "meshrt"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    client = Client(ADAPTER)
    client.request("initialize", adapterID="debugpy")
    with pytest.raises(RequestFailed, match="threads was sent before attach"):
        client.request("threads")
    client.request("disconnect")
    wait_until(lambda: client.ended, WAIT, "its end")
    client.close()


def test_what_is_no_message_is_printed_and_the_status_is_1() -> None:
    for sent, said in (
        (b"GET / HTTP/1.1\r\n\r\n", "expected Content-Length: N"),
        (b"Content-Length: 1\r\n\r\n{", "JSON"),
        (b"Content-Len", "the input ends in a header: b'Content-Len'; expected Content-Length: N"),
        (b"Content-Length: 5\r\n\r\n{", "the input ends after 1 of the 5 bytes of a message"),
    ):
        done = subprocess.run(ADAPTER, input=sent, capture_output=True, timeout=WAIT, check=False)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.startswith(b"meshrt dap: ") and said in done.stderr.decode()
