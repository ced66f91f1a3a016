"""The attach requests of Microsoft's extension "Python Debugger" for VS Code, with all that it adds to an entry.

Read from the source of its version 2025.1: ``AttachConfigurationResolver`` resolves the entry and the configuration of
each further session alike, ``ChildProcessAttachService`` starts a session from the body of a ``debugpyAttach``. VS Code
itself adds the keys that begin with ``__``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshrt import proc_mesh
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
#: No entry asks for it. (``host`` and ``pathMappings`` are added where there is no ``connect``.)
ADDED: dict[str, Any] = {
    "clientOS": "unix",
    "debugOptions": ["RedirectOutput", "ShowReturnValue"],
    "showReturnValue": True,
    "workspaceFolder": str(Path(SOURCE).parent),
    "__configurationTarget": 6,
    "__sessionId": "6f0c1a52-8f7e-4f0a-9b37-0f7a7e3f7f11",
}


@pytest.mark.slow
@pytest.mark.parametrize("start_debugging", [True, False], ids=["startDebugging", "debugpyAttach"])
def test_sessions(start_debugging: bool) -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide(start_debugging=start_debugging, **ADDED) as ide:
        ranks = ide.children(2)
        for rank in ranks:
            # It finds the folder by one of them, and names a session that cannot be started by another.
            assert {key: rank.configuration.get(key) for key in ADDED} == ADDED
            assert isinstance(rank.configuration["subProcessId"], int)
            assert rank.configuration["connect"] == served.configuration["connect"]

        ide.set_breakpoints(SOURCE, [marked_line(SOURCE, "step")])
        call = trainer.step.call(2)
        ide.stopped(2)
        ranks[1].resume("next")
        ide.stopped(2)
        assert ranks[1].variables()["(return) add"] == "2"
        ide.continue_all()
        call.get(WAIT)

        trainer.say.call("loss 0.5\n").get(WAIT)
        for rank in ranks:
            said = rank.client.wait_event("output", lambda body: body["category"] == "stdout")
            assert said["output"] == "loss 0.5\n"
        ide.disconnect()
        assert list(trainer.traced.call().get(WAIT).values()) == [[], []]


@pytest.mark.slow
def test_threads() -> None:
    trainer = proc_mesh(gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide(meshView="threads", **ADDED) as ide:
        # One begins a line that the other one does not end.
        trainer.slice(gpus=0).say.call("loss ").get(WAIT)
        trainer.slice(gpus=1).say.call("epoch 1\n").get(WAIT)
        trainer.slice(gpus=0).say.call("0.5\n", "more").get(WAIT)
        shown = [ide.root.client.wait_event("output", lambda body: body["category"] == "stdout") for _ in range(2)]
        assert {each["output"] for each in shown} == {"rank 1: epoch 1\n", "rank 0: loss 0.5\n"}
        # What a person looks at now is shown whole.
        ide.set_breakpoints(SOURCE, [marked_line(SOURCE, "step")])
        call = trainer.step.call(2)
        for _ in range(2):
            ide.root.client.wait_event("stopped")
        assert ide.root.client.wait_event("output", lambda body: "more" in body["output"])["output"] == "rank 0: more\n"
        ide.root.resume()
        call.get(WAIT)
        ide.disconnect()
        assert list(trainer.traced.call().get(WAIT).values()) == [[], []]
