"""A thousand ranks on one machine: everything works, and says it in few lines."""

from __future__ import annotations

import pytest

from meshrt import ActorError, proc_mesh
from tests.debug.actors import Debugee
from tests.debug.harness import person
from tests.debug.waits import Waits, line_of
from tests.support.waiting import wait_until

RANKS = 1024
WAIT = 120


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_thousand_ranks() -> None:
    mesh = proc_mesh(hosts=8, gpus=RANKS // 8).spawn("debugee", Debugee).get(WAIT)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee", seconds=WAIT)
        assert me("list").count("| debugee ") == 1
        assert "hosts=*, gpus=*" in me.terminal.shown
        assert "1024/1024" in me("where")
        assert me("cast debugee ranks(!13) n").startswith("[0-12,14-1023]\n> ")
        assert "likely culprits" in me("where")
        assert "1024 values" in me("p debugee rank")
        assert me("p debugee ranks(hosts=1) rank // 128") == "[128-255] 1\n"
        assert me("continue").splitlines()[-1] == "1024 ranks of debugee (0-1023): resumed"
        assert len(result.get(WAIT)) == RANKS
        wait_until(lambda: me("list") == "nothing is stopped\n", 20)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_thousand_ranks_that_run() -> None:
    mesh = proc_mesh(hosts=8, gpus=RANKS // 8).spawn("w", Waits).get(WAIT)
    waiting = mesh.wait.call()
    with person() as me:
        wait_until(lambda: f"w 0-1023: blocked at waits.py:{line_of('wait')} (wait)" in me("status"), WAIT)
        me("interrupt w")
        me.wait("w", seconds=WAIT)
        me("cast w ranks(:) !self.go.set()")
        assert me("continue").splitlines()[-1] == "1024 ranks of w (0-1023): resumed"
        assert len(waiting.get(WAIT)) == RANKS
        me(f"break waits.py:{line_of('compute')} ranks(gpus=0)")
        computed = mesh.compute.call(3)
        me.wait("w", "ranks(gpus=0)", seconds=WAIT)
        assert "hit [0-896:128] once" in me("breaks")
        me("clear all")
        assert me("continue") == "8 ranks of w (0-896:128): resumed\n"
        assert set(computed.get(WAIT).values()) == {6}
        me("postmortem on")
        failing = mesh.fail.call((13,))
        me.wait("w", "ranks(13)", seconds=WAIT)
        assert "post-mortem" in me("list post-mortem")
        assert me("logs w") == "1024 ranks of w (0-1023): no line printed\n"
        me("continue")
    with pytest.raises(ActorError, match="rank 13 is bad"):
        failing.get(WAIT)
