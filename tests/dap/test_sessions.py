"""A session for each rank: what a person does at four of them."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt import ActorError, Future, MeshError, proc_mesh
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import AsyncDebugged, Debugged
from tests.dap.ide import Ide
from tests.dap.router import router
from tests.dap.session import Session
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__


def line(name: str) -> int:
    return marked_line(SOURCE, name)


def places(ide: Ide) -> set[tuple[str, int]]:
    """Where the ranks stand that stand: function and line."""
    tops = ide.each(ide.stopped(), lambda session: session.stack()[0])
    return {(top["name"].rpartition(".")[2], top["line"]) for top in tops.values()}


@pytest.mark.slow
def test_breakpoints_steps_and_values() -> None:
    trainer = proc_mesh(hosts=2, gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        ranks = ide.children(4)
        assert [rank.name for rank in ranks] == [
            "hosts=0,gpus=0 (rank 0)",
            "hosts=0,gpus=1 (rank 1)",
            "hosts=1,gpus=0 (rank 2)",
            "hosts=1,gpus=1 (rank 3)",
        ]
        answers = ide.set_breakpoints(SOURCE, [line("step")])
        assert all(answers[rank.name][0]["verified"] for rank in ranks)
        call = trainer.step.call(5)
        ide.stopped(4)
        assert places(ide) == {("step", line("step"))}
        assert {rank.stop["reason"] for rank in ranks if rank.stop} == {"breakpoint"}

        # One goes into the function, and out of it; the others stand where they stood.
        one = ranks[1]
        one.resume("stepIn")
        ide.stopped(4)
        assert one.stack()[0]["line"] == line("add")
        assert one.variables() == {"before": "0", "by": "5"}
        one.resume("next")
        ide.stopped(4)
        assert one.evaluate("total", "hover") == one.evaluate("total", "watch") == "5"
        one.resume("stepOut")
        ide.stopped(4)
        # The stack frame that it comes out of is there until it goes on, where it stands at the return itself.
        assert places(ide) == {("step", line("step"))}
        where = ide.root.client.request("evaluate", expression="where ranks(1)", context="repl")["result"]
        assert f"debugged.py:{line('step')}" in where and f"debugged.py:{line('add') + 1}" in where
        one.resume("next")
        ide.stopped(4)
        assert places(ide) == {("step", line("step")), ("step", line("after"))}

        # Values are looked at and changed.
        top = one.stack()[0]["id"]
        scope = one.client.request("scopes", frameId=top)["scopes"][0]["variablesReference"]
        one.client.request("setVariable", variablesReference=scope, name="before", value="41")
        one.client.request("setExpression", frameId=top, expression="self.count", value="before + 1")
        assert one.evaluate("self.count") == "42"
        offered = one.client.request("completions", frameId=top, text="self.cou", column=9)["targets"]
        assert "count" in [each["label"] for each in offered]
        assert ide.evaluate("self.rank") == {rank.name: str(number) for number, rank in enumerate(ranks)}
        ide.set_breakpoints(SOURCE, [])
        ide.continue_all()
        assert sorted(call.get(WAIT).values()) == [5, 5, 5, 42]

        # On a condition, at a count, and only to say something.
        ide.set_breakpoints(SOURCE, [line("turn")], condition="turn == 2 and self.rank > 1")
        call = trainer.turns.call(4)
        assert [session.name for session in ide.stopped(2)] == [ranks[2].name, ranks[3].name]
        assert set(ide.evaluate("(turn, total)").values()) == {"(2, 1)"}
        ide.continue_all()
        call.get(WAIT)
        ide.set_breakpoints(SOURCE, [line("turn")], hitCondition="3")
        call = trainer.turns.call(4)
        ide.stopped(4)
        assert set(ide.evaluate("turn").values()) == {"2"}
        ide.continue_all()
        call.get(WAIT)
        ide.set_breakpoints(SOURCE, [line("turn")], logMessage="{self.rank} at {turn}")
        trainer.turns.call(2).get(WAIT)
        for number, rank in enumerate(ranks):
            rank.client.wait_event("output", lambda body, text=f"{number} at 1": text in body["output"])  # type: ignore[misc]
        ide.set_breakpoints(SOURCE, [])

        ide.disconnect()
        # Nothing of the engine's tracing is left, in no thread and no frame.
        wait_until(lambda: not any(trainer.traced.call().get(WAIT).values()), WAIT, "nothing traced")


def test_exceptions() -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        (rank,) = ide.children(1)
        seen: dict[str, list[int]] = {}
        for kind in ("uncaught", "raised", "userUnhandled"):
            ide.set_exceptions(kind)
            call: Future[Any] = trainer.fail.call_one()
            lines = seen[kind] = []
            while True:
                wait_until(lambda call=call: rank.stop is not None or call.done(), WAIT)  # type: ignore[misc]
                if rank.stop is None:
                    break
                assert rank.stop["reason"] == "exception"
                stop = rank.stop
                said = rank.client.request("exceptionInfo", threadId=stop["threadId"])
                lines.append(rank.stack()[0]["line"])
                if lines[-1] == line("fail"):
                    assert said["exceptionId"].startswith("ValueError") and said["details"]["message"] == "wrong value"
                rank.resume()
            with pytest.raises(ActorError, match="wrong value"):
                call.get(WAIT)
        assert seen["uncaught"] == [line("fail")]
        assert seen["raised"][:2] == [line("caught"), line("fail")]
        assert line("caught") not in seen["userUnhandled"]
        ide.set_exceptions()
        with pytest.raises(ActorError, match="wrong value"):
            trainer.fail.call_one().get(WAIT)

        call = trainer.stop_here.call_one()
        ide.stopped()
        assert rank.variables()["here"] == "0"
        ide.continue_all()
        assert call.get(WAIT) == 0


def stand(ide: Ide, rank: Session, thread: int = 1) -> Any:
    """Pause a rank; returns the innermost stack frame of its main thread that is of the tests' source."""
    rank.pause(thread)
    ide.stopped()
    return next(frame for frame in rank.stack(rank.main) if frame["source"].get("path") == SOURCE)


def until_in(rank: Session, kind: str) -> None:
    """Wait until the main thread is on a line; its stack is read while it runs."""
    wait_until(lambda: line(kind) in [frame["line"] for frame in rank.stack(rank.main)], WAIT, kind)


def let_go(ide: Ide, rank: Session, frame: Any) -> None:
    """End what the endpoint waits for, and let it go on."""
    wait_until(lambda: can_be_asked(rank, frame), WAIT, "the main thread stands, too")
    rank.evaluate("self.go.set()", frame=frame["id"])
    ide.continue_all()


def can_be_asked(rank: Session, frame: Any) -> bool:
    try:
        return rank.evaluate("self.rank", frame=frame["id"]) == "0"
    except RequestFailed:
        return False  # it does not stand yet: another thread did first


@pytest.mark.slow
def test_pauses() -> None:
    mesh = proc_mesh(gpus=1)
    trainer = mesh.spawn("trainer", Debugged)
    other: Any = mesh.spawn("other", AsyncDebugged)
    trainer.initialized.get(WAIT)
    other.initialized.get(WAIT)
    with router() as served:
        # It comes to a loop that runs already, and stops in that very frame, while it is still being attached.
        call: Future[Any] = trainer.wait.call_one("loop")
        ide = served.ide()
        ide.set_breakpoints(SOURCE, [line("hot")])
        with ide:
            (rank,) = ide.children(1)
            ide.stopped()
            assert rank.stop is not None and rank.stop["reason"] == "breakpoint"
            assert rank.stack()[0]["line"] == line("hot") and rank.breakpoints[SOURCE][0]["verified"]
            ide.set_breakpoints(SOURCE, [])
            let_go(ide, rank, rank.stack(rank.main)[0])
            assert call.get(WAIT) == "loop"

            for kind in ("recv", "lock", "queue", "join", "condition", "loop"):
                call = trainer.wait.call_one(kind)
                if kind != "loop":
                    until_in(rank, kind)
                frame = stand(ide, rank)
                assert kind == "loop" or frame["line"] == line(kind)
                let_go(ide, rank, frame)
                assert call.get(WAIT) == kind, kind

            # Another actor's loop, on a thread of its own; every thread stands then.
            call = other.spin.call_one()
            wait_until(
                lambda: "other" in " ".join(thread["name"] for thread in rank.threads()), WAIT, "the actor's thread"
            )
            threads = {thread["name"]: thread["id"] for thread in rank.threads()}
            (its,) = (number for name, number in threads.items() if "other" in name)
            blocked = trainer.wait.call_one("recv")
            until_in(rank, "recv")
            frame = stand(ide, rank, its)
            assert rank.stop["threadId"] == its
            rank.evaluate("setattr(self, 'busy', False)")
            # That its main thread blocks is no reason for it to go on meanwhile.
            let_go(ide, rank, frame)
            call.get(WAIT)
            blocked.get(WAIT)

            # What waits for a message, or awaits, has no line to stop at; that is said, and the next line is it.
            rank.pause(1)
            rank.client.wait_event("output", lambda body: "not paused yet: no endpoint is running" in body["output"])
            call = trainer.step.call_one(1)
            ide.stopped()
            ide.continue_all()
            assert call.get(WAIT) == 1

            # The mesh is stopped while a rank stands: nobody waits for a person.
            call = trainer.wait.call_one("sleep")
            until_in(rank, "sleep")
            assert stand(ide, rank)["line"] == line("sleep")
            mesh.stop(0.1).get(WAIT)
            rank.wait_over()
            with pytest.raises(MeshError):
                call.get(WAIT)
