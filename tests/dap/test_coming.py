"""Ranks before an IDE comes, and IDEs that come back."""

from __future__ import annotations

import builtins
import json
import socket
import sys
import threading

import psutil
import pytest

from meshrt import Actor, endpoint, proc_mesh
from meshrt.commandline.shell import run_words
from meshrt.mesh.program import start_root
from tests.dap import debugged
from tests.dap.client import Client
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.support.markers import marked_line
from tests.support.waiting import holds_within, wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__


class Looks(Actor):
    """Says what is in its process."""

    @endpoint
    def around(self) -> tuple[bool, bool, bool, list[str]]:
        """Whether the engine is imported, whether anything traces, and what it has left for everybody."""
        traced = sys.gettrace() is not None or threading.gettrace() is not None
        hooked = sys.breakpointhook.__module__.startswith(("pydev", "_pydev", "debugpy"))
        return (
            "pydevd" in sys.modules,
            traced,
            hooked,
            [name for name in ("runfile", "execfile") if name in vars(builtins)],
        )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_programs_own_port_costs_nothing_until_an_ide_comes(
    how: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if how == "environment":
        monkeypatch.setenv("MESHRT_DAP", "0")
    looks = proc_mesh(n=2, dap=0 if how == "argument" else None).spawn("looks", Looks)
    said: list[str] = []

    def told(text: str) -> bool:
        said.append(capfd.readouterr().err)
        return text in "".join(said)

    assert holds_within(WAIT, lambda: told("an IDE can attach at 127.0.0.1:")), "".join(said)
    nothing: tuple[bool, bool, bool, list[str]] = (False, False, False, [])
    assert list(looks.around.call().get(WAIT).values()) == [nothing, nothing]

    # The entry that it names is one, and the one port is all that is listened at. A rank that is not meant is let be.
    port = "".join(said).partition("127.0.0.1:")[2].partition(";")[0]
    assert f"meshrt dap --no-serve --port {port} shows the entry for launch.json" in "".join(said)
    assert run_words(["dap", "--no-serve", "--port", port]) == 0
    entry = json.loads(capfd.readouterr().out.partition(":\n")[2])
    with Ide(("127.0.0.1", int(port)), {**entry, "meshRanks": 0}) as ide:
        ide.children(1)
        slow = "Python 3.11 traces every call while an IDE is attached"
        if sys.version_info < (3, 12):
            ide.root.client.wait_event("output", lambda body: slow in body["output"])
        loaded = [around[0] for around in looks.around.call().get(WAIT).values()]
        assert loaded == [True, False]
        processes = psutil.Process().children(recursive=True)
        sockets = [each for process in processes for each in process.net_connections("inet")]
        assert [each.laddr for each in sockets if each.status == psutil.CONN_LISTEN] == [("127.0.0.1", int(port))]
        ide.disconnect()
        assert sys.version_info < (3, 12) or slow not in ide.root.output
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        proc_mesh(n=1, dap=taken).initialized.get(WAIT)
        wait_until(lambda: told(f"no IDE can attach at port {taken}: meshrt dap: cannot listen at port {taken}:"), WAIT)


@pytest.mark.slow
def test_an_ide_comes_back_as_soon_as_it_has_left() -> None:
    debugged = proc_mesh(n=2).spawn("debugged", Debugged)
    debugged.step.call(1).get()
    with router() as adapter:
        for _ in range(3):
            with adapter.ide() as ide:
                ide.children(2)
                ide.disconnect()


def test_what_stops_while_an_ide_comes_is_told_once() -> None:
    trainer = proc_mesh(n=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    (mesh,) = start_root().services.meshes()
    with router() as served:
        client = Client(served.address)
        client.request("initialize", adapterID="debugpy")
        attaching = client.begin("attach", meshToken=served.token, meshRank=[mesh.mesh_id, 0])
        client.wait_event("initialized", unless=attaching)
        client.request("setBreakpoints", source={"path": SOURCE}, breakpoints=[{"line": marked_line(SOURCE, "step")}])
        call = trainer.step.call_one(1)
        thread = client.wait_event("stopped")["threadId"]
        client.request("configurationDone")
        client.result_of(attaching, "attach")
        # An answer behind it: whatever else was to be told has come.
        client.request("threads")
        assert [event.name for event in client.events].count("stopped") == 1
        client.request("continue", threadId=thread)
        assert call.get(WAIT) == 1
        client.request("disconnect")
        client.close()
