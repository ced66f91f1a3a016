"""Threads of a rank that are not its main thread, in an IDE."""

from __future__ import annotations

import pytest

from meshrt import proc_mesh
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__


def test_a_thread_may_have_the_number_of_one_that_has_ended() -> None:
    mesh = proc_mesh(n=1)
    mesh.spawn("trainer", Debugged).initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        ide.set_breakpoints(SOURCE, [marked_line(SOURCE, "step")])
        (rank,) = ide.children(1)
        # Served by a thread that ends with it. The next one gets its memory, and so its number.
        assert ide.root.evaluate("p trainer 1", frame=0) == "[0] 1"
        further = mesh.spawn("further", Debugged)
        call = further.step.call_one(1)
        ide.stopped()
        assert rank.stop is not None
        names = {each["id"]: each["name"] for each in rank.threads()}
        assert names == {1: "MainThread", rank.stop["threadId"]: "meshrt-further"}
        ide.continue_all()
        assert call.get(WAIT) == 1
