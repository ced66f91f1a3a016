"""User code that forks in a rank that an IDE has: nothing stops in the child, where nobody could let it go on."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt import proc_mesh
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.dap.session import Session
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
ADD = marked_line(SOURCE, "add")
FORK = marked_line(SOURCE, "fork")


def fork_in_a_step(how: str, trainer: Any, ide: Ide, rank: Session) -> None:
    """Step from the line that forks: the rank stands at the next one, and the child has gone on."""
    call = trainer.fork.call_one()
    ide.stopped(1)
    rank.resume(how)
    ide.stopped(1)
    assert rank.stack()[0]["line"] == FORK + 1
    ide.continue_all()
    assert call.get(WAIT) == 5


@pytest.mark.slow
def test_a_child_runs_through_breakpoints_and_the_rank_does_not() -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        (rank,) = ide.children(1)
        ide.set_breakpoints(SOURCE, [ADD])
        assert trainer.fork.call_one().get(WAIT) == 5
        assert trainer.multiprocess.call_one().get(WAIT) == 5

        # A step over the fork is the rank's; the child goes on.
        ide.set_breakpoints(SOURCE, [ADD, FORK])
        fork_in_a_step("next", trainer, ide, rank)

        call = trainer.step.call_one(1)
        ide.stopped(1)
        top = rank.stack()[0]
        assert top["line"] == ADD
        # One that is forked in the console goes on from where the rank stands, to its end.
        child = rank.evaluate("__import__('os').fork()", frame=top["id"])
        assert rank.evaluate(f"__import__('os').waitpid({child}, 0)", frame=top["id"]) == f"({child}, 0)"
        ide.continue_all()
        assert call.get(WAIT) == 1
        ide.disconnect()

    # Nor does a step into the fork, among all code, in what the standard library has registered to be called then.
    with router() as served, served.ide(justMyCode=False) as ide:
        (rank,) = ide.children(1)
        ide.set_breakpoints(SOURCE, [FORK])
        fork_in_a_step("stepIn", trainer, ide, rank)
