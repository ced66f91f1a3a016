"""A person looks at one rank: the mesh's console is there, other ranks draw no eyes, and ends are told once."""

from __future__ import annotations

import os
import signal

import pytest

from meshrt import MeshError, proc_mesh
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.dap.session import Session
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__


def line(name: str) -> int:
    return marked_line(SOURCE, name)


def step_all(ide: Ide, typed_in: Session) -> dict[str, bool]:
    """Step all ranks by the mesh's console; whether the stop of each draws the eyes there."""
    ranks = ide.children(3)
    before = {rank.name: [event.name for event in rank.client.events].count("stopped") for rank in ranks}
    assert typed_in.evaluate("n" if typed_in is ide.root else "mesh n", frame=0) == "ranks 0-2: stepping"

    def stops(rank: Session) -> list[bool]:
        found = [event.body for event in rank.client.events if event.name == "stopped"]
        return [not body.get("preserveFocusHint") for body in found[before[rank.name] :]]

    ide.wait_for(lambda: all(stops(rank) for rank in ranks), "a stop of each rank")
    return {rank.name: stops(rank)[0] for rank in ranks}


def outputs(session: Session, category: str) -> list[str]:
    found = [event.body for event in session.client.events if event.name == "output"]
    return [body["output"] for body in found if body.get("category") == category]


@pytest.mark.slow
def test_lines_for_the_mesh() -> None:
    trainer = proc_mesh(gpus=3).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        ranks = ide.children(3)
        one = ranks[1]
        assert outputs(ide.root, "console")[0].startswith(
            "meshrt: 3 ranks; this console runs commands for all of them: where"
        )
        ide.set_breakpoints(SOURCE, [line("after")])
        call = trainer.step.call(5)
        ide.stopped(3)
        assert one.evaluate("mesh p trainer after") == one.evaluate("mesh  p trainer ranks(0:3) after")
        ten = "[0-2] 10"
        assert one.evaluate("mesh p trainer self.count + by") == ide.root.evaluate("p trainer 10", frame=0) == ten
        assert "step" in one.evaluate("mesh where")
        # What looks like it, and is Python, is Python.
        one.evaluate("mesh = 3")
        assert one.evaluate("mesh - 1") == "2"
        with pytest.raises(
            RequestFailed, match=r"'c' is not defined(?s:.*)this console runs Python on gpus=1 .*: mesh c"
        ):
            one.evaluate("c")
        with pytest.raises(RequestFailed, match=r"^(?!(?s:.*)runs Python on)"):
            one.evaluate("undefined")

        # A step of all moves the eyes to the rank that a person looks at, or nowhere.
        assert step_all(ide, one) == {rank.name: rank is one for rank in ranks}
        ide.set_breakpoints(SOURCE, [])
        one.evaluate("mesh c")
        assert sorted(call.get(WAIT).values()) == [5, 5, 5]
        ide.set_breakpoints(SOURCE, [line("step")])
        call = trainer.step.call(1)
        ide.stopped(3)
        assert not any(rank.stop["preserveFocusHint"] for rank in ranks if rank.stop)
        assert not any(step_all(ide, ide.root).values())
        one.resume("next")
        ide.stopped(3)
        assert one.stop is not None and not one.stop["preserveFocusHint"]

        ide.set_breakpoints(SOURCE, [])
        one.evaluate("mesh c")
        assert sorted(call.get(WAIT).values()) == [6, 6, 6]

        # A pause that finds nothing to stop is taken back.
        assert one.evaluate("mesh pause", frame=0) == "ranks 0-2: asked to pause"
        assert one.evaluate("mesh c", frame=0) == "ranks 0-2: pause cancelled"
        assert one.evaluate("mesh c", frame=0) != "ranks 0-2: pause cancelled"
        assert set(trainer.turns.call(3).get(WAIT).values()) == {3} and not any(rank.stop for rank in ranks)
        # To let go on what runs already is no mistake.
        assert one.client.request("continue", threadId=1) == {"allThreadsContinued": True}

        # What is asked to pause between two calls stops in the next one, and in no code that the runtime has made.
        assert one.evaluate("mesh pause", frame=0) == "ranks 0-2: asked to pause"
        call = trainer.turns.call(1)
        assert {rank.stack()[0]["name"].rpartition(".")[2] for rank in ide.stopped(3)} == {"turns"}

        # Whoever leaves the mesh leaves its ranks, which go on, and may come again.
        ide.root.disconnect()
        for session in ranks:
            session.wait_over()
        call.get(WAIT)
        late = Session(ide, served.address, one.configuration)
        with pytest.raises(RequestFailed, match="the session of the mesh that announced this session has ended"):
            late.attach()
        with served.ide(meshRanks="ranks(1:3)") as another:
            another.children(2)
            # A second window is told once, by its own session, and gets what is left.
            with pytest.raises(RequestFailed, match=r"ranks 1-2: another window is attached, .*; meshRanks chooses"):
                served.ide(meshRanks="ranks(1:)").attach()
            with served.ide() as second:
                assert [rank.name for rank in second.children(1)] == ["gpus=0 (rank 0)"]
                second.root.client.wait_event(
                    "output", lambda body: body["output"].endswith("another window is attached\n")
                )
                assert not second.problems


@pytest.mark.slow
def test_ends_are_told_once() -> None:
    trainer = proc_mesh(gpus=3).spawn("trainer", Debugged)
    pids = [facts[0] for facts in trainer.facts.call().get(WAIT).values()]
    with router() as served, served.ide() as ide:
        ranks = ide.children(3)
        os.kill(pids[0], signal.SIGKILL)
        with pytest.raises(MeshError):
            trainer.facts.call().get(WAIT)
        ranks[0].wait_over()
        ide.root.client.wait_event("output", lambda body: body.get("category") == "important")
        assert outputs(ide.root, "important") == ["meshrt: gpus=0 (rank 0): the rank was killed by SIGKILL\n"]
        # The router that is ended lets all sessions say goodbye, and shows a person nothing of each rank.
        served.process.send_signal(signal.SIGINT)
        for session in (ide.root, *ranks[1:]):
            session.wait_over()
            heard = session.client.events
            assert [event.name for event in heard].count("terminated") == 1, heard
            assert not outputs(session, "important") or session is ide.root
        assert len(outputs(ide.root, "important")) == 1
        assert served.process.wait(WAIT) == 0
        assert not ide.problems
    assert len(trainer.slice(gpus=slice(1, 3)).facts.call().get(WAIT)) == 2
