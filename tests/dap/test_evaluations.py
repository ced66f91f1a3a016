"""What is evaluated in an IDE and does not come to its end: the rank is not lost by it."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from meshrt import proc_mesh
from meshrt.hooks.facts import Body
from tests.dap import debugged
from tests.dap.client import RequestFailed
from tests.dap.debugged import Debugged
from tests.dap.router import router
from tests.dap.session import Session
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")

WAIT = 30.0
SOURCE = debugged.__file__
STEP = marked_line(SOURCE, "step")
#: Statements that never end, but by an interruption; one is blocked, one catches what is raised in it, once.
ENDLESS = {
    "loop": "while True: pass",
    "blocked": "import threading; threading.Event().wait()",
    "call": "self.kept.facts.call_one().get()",
    "caught": "try:\n    while True: pass\nexcept BaseException:\n    while True: pass",
    "await": "import asyncio; await asyncio.sleep(10000)",
}
LONG = "[0 for _ in iter(int, 1) if False]"

Begun = Callable[[Session, str, int | None], Future[Body]]


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    """Have a statement evaluated; returns when a thread is at work on it."""

    def begin(rank: Session, statement: str, frame: int | None) -> Future[Body]:
        mark = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        at = {} if frame is None else {"frameId": frame}
        line = f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n{statement}"
        answer = rank.client.begin("evaluate", expression=line, context="repl", **at)
        wait_until(mark.exists, WAIT, statement)
        return answer

    return begin


def interrupted(rank: Session, answer: Future[Body]) -> None:
    with pytest.raises(RequestFailed, match="KeyboardInterrupt"):
        rank.client.result_of(answer, "what does not end")


def test_many_at_once_and_what_cannot_be_set(capfd: pytest.CaptureFixture[str]) -> None:
    trainer = proc_mesh(gpus=1).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    with router() as served, served.ide() as ide:
        (rank,) = ide.children(1)
        ide.set_breakpoints(SOURCE, [STEP])
        trainer.step.call_one(1)
        ide.stopped()
        # From here on a thread that stands looks for what it is to do when it is woken, and never by itself.
        rank.evaluate("import pydevd; pydevd.TIMEOUT_SLOW = 10000")
        again = trainer.step.call_one(1)
        ide.continue_all()
        ide.stopped()
        top = rank.stack()[0]["id"]

        asked = [
            rank.client.begin("evaluate", expression=f"before + {number}", context="watch", frameId=top)
            for number in range(50)
        ]
        found = [rank.client.result_of(answer, "a watch")["result"] for answer in asked]
        assert found == [str(1 + number) for number in range(50)]

        # A variable that cannot be set says why, keeps its value, and writes nothing where the program prints.
        scopes = rank.client.request("scopes", frameId=top)["scopes"]
        local, module = (
            next(scope["variablesReference"] for scope in scopes if scope["name"] == name)
            for name in ("Locals", "Globals")
        )
        variables = rank.client.request("variables", variablesReference=local)["variables"]
        actor = next(each["variablesReference"] for each in variables if each["name"] == "self")
        capfd.readouterr()
        for container, name, value, why in (
            (local, "before", "1 / 0", "ZeroDivisionError: division by zero"),
            (local, "before", "(", "SyntaxError: "),
            (local, "nothing", "missing", "NameError: name 'missing' is not defined"),
            (module, "STOPPED", "1 / 0", "not found in globals"),
            (actor, "count", "1 / 0", "Unable to change: count"),
            (99999, "before", "1", "99999"),
        ):
            with pytest.raises(RequestFailed, match=re.escape(why)):
                rank.client.request("setVariable", variablesReference=container, name=name, value=value)
        assert rank.client.request("setVariable", variablesReference=local, name="before", value="4")["value"] == "4"
        ide.continue_all()
        assert again.get(WAIT) == 5
        trainer.say.call_one("all that is printed\n").get(WAIT)
        said: list[str] = []

        def printed(text: str) -> bool:
            said.extend(capfd.readouterr())
            return text in "".join(said)

        wait_until(lambda: printed("all that is printed"), WAIT, "what the rank prints last")
        assert not printed("Error"), said


@pytest.mark.slow
def test_the_rank_is_given_back(begun: Begun) -> None:
    mesh = proc_mesh(gpus=1)
    trainer, other = mesh.spawn("trainer", Debugged), mesh.spawn("other", Debugged)
    for actor in (trainer, other):
        actor.initialized.get(WAIT)
    trainer.keep.call_one(trainer).get(WAIT)
    with router() as served:
        ide = served.ide(meshOnLost="stay")
        ide.set_breakpoints(SOURCE, [STEP])
        with ide:
            (rank,) = ide.children(1)
            call = trainer.step.call_one(1)
            ide.stopped()
            top = rank.stack()[0]["id"]
            # By a pause, of a rank that stands: it stands on.
            for statement in ENDLESS.values():
                answer = begun(rank, statement, top)
                assert "interrupted" in rank.evaluate("mesh pause", frame=0)
                interrupted(rank, answer)
                assert rank.evaluate("before", frame=top) == "0" and not call.done()
            # Values that are shown, names that are completed, and variables that are set run code as well.
            body = f"return {LONG}"
            rank.evaluate(f"class Endless:\n def __repr__(self): {body}\n def __dir__(self): {body}", frame=top)
            rank.evaluate("endless = Endless()", frame=top)
            scope = rank.client.request("scopes", frameId=top)["scopes"][0]["variablesReference"]
            asked = [
                rank.client.begin("evaluate", expression="endless", context="hover", frameId=top),
                rank.client.begin("completions", text="endless.", column=9, frameId=top),
                rank.client.begin("setVariable", variablesReference=scope, name="before", value=LONG),
                rank.client.begin("setExpression", frameId=top, expression="before", value=LONG),
                rank.client.begin("variables", variablesReference=scope),
            ]
            rank.threads()  # it is asked behind them, and answered at once
            rank.pause(1)
            for answer in asked:
                wait_until(answer.done, WAIT, "an answer")
            assert rank.evaluate("before", frame=top) == "0"

            # By going on; what waits behind it is not in the way, either.
            first = begun(rank, ENDLESS["loop"], top)
            second = rank.client.begin("evaluate", expression=LONG, context="hover", frameId=top)
            rank.resume("next")
            interrupted(rank, first)
            interrupted(rank, second)
            ide.stopped()
            assert rank.stack()[0]["line"] == STEP + 1
            ide.continue_all()
            assert call.get(WAIT) == 1
            assert "the running evaluation is interrupted" in rank.client.output

            # Of a rank that runs: what is asked of no stack frame has a thread of its own.
            answer = begun(rank, ENDLESS["loop"], None)
            rank.evaluate("mesh pause", frame=0)
            interrupted(rank, answer)
            rank.evaluate("mesh c", frame=0)

            # On the thread of a further actor, and the IDE is killed.
            call = other.step.call_one(1)
            ide.stopped()
            begun(rank, ENDLESS["loop"], rank.stack()[0]["id"])
        # The one that comes back finds it standing.
        with served.ide() as ide:
            (rank,) = ide.children(1)
            ide.stopped()
            assert rank.evaluate("before") == "0"
            begun(rank, ENDLESS["caught"], rank.stack()[0]["id"])
            ide.disconnect()
            assert call.get(WAIT) == 1
        with served.ide() as ide:
            (rank,) = ide.children(1)
            ide.set_breakpoints(SOURCE, [STEP])
            call = trainer.step.call_one(1)
            ide.stopped()
            begun(rank, ENDLESS["blocked"], rank.stack()[0]["id"])
            ide.kill()
            assert call.get(WAIT) == 2
