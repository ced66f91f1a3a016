"""Endpoints that raise: stopped with their live stack frames, or written to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from meshrt import Actor, ActorError, Future, MeshError, endpoint, proc_mesh
from meshrt.debug.dumpfile import LinkedError, read_dump
from meshrt.debug.rank_operations import CompleteAtRank, Ended, Evaluate, SetModes, Stopped, Value
from meshrt.inspect.facts import DictFacts, NumberFacts
from meshrt.mesh.program import start_root
from meshrt.program.places import Place
from tests.debug import busy
from tests.debug.busy import Busy, line_of
from tests.debug.desk import WAIT, Desk, desk
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until


class Awkward:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


class Fails(Actor):
    def __init__(self, when: str = "") -> None:
        self.when = when
        if when == "init":
            raise ValueError("not built")

    @endpoint
    def fail(self) -> None:
        odd = Awkward()  # noqa: F841
        many = list(range(100_000))  # noqa: F841
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error

    @endpoint
    async def fail_later(self) -> None:
        value = 3  # noqa: F841
        raise ValueError("async")


def failing_setup() -> None:
    device = "gpu7"
    raise OSError(f"no device {device}")


def test_every_failure_stops_when_asked(tmp_path: Path) -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Busy).get(WAIT)
    with desk() as root:
        assert root.ask(SetModes({"": "on"})).same.own == "default"
        answer = worker.fail.call_one(9)
        stop = root.stopped()
        assert stop.place == Place(busy.__file__, line_of("fail"), "fail")
        assert stop.reason == "post-mortem"
        assert stop.text.startswith("ValueError: bad 9\n")
        assert root.show("p secret").text == "9\n"
        root.let_go()
        with pytest.raises(ActorError, match="bad 9"):
            answer.get(WAIT)
        root.event(Ended)
        with pytest.raises(ActorError, match="SystemExit"):
            worker.exit.call_one().get(WAIT)
        root.ask(SetModes({"": "on", "worker": "off"}))
        with pytest.raises(ActorError, match="bad 7"):
            worker.fail.call_one().get(WAIT)
        root.ask(SetModes({"": "default"}))
        with pytest.raises(ActorError, match="bad 7"):
            worker.fail.call_one().get(WAIT)
        assert root.quiet(Stopped)
        wrong: Any = "sometimes"
        with pytest.raises(MeshError, match="Invalid enum value 'sometimes'"):
            root.ask(SetModes({"": wrong}))


def test_async_init_and_setup() -> None:
    procs = proc_mesh(gpus=1)
    worker = procs.spawn("worker", Fails).get(WAIT)
    with desk() as root:
        root.ask(SetModes({"": "on"}))
        answer = worker.fail_later.call_one()
        root.stopped()
        assert root.show("p value").text == "3\n"
        root.let_go()
        with pytest.raises(ActorError, match="async"):
            answer.get(WAIT)
        built = procs.spawn("another", Fails, "init")
        stop = root.stopped(actor="another")
        assert (stop.endpoint, stop.place.function) == ("__init__", "__init__")
        assert root.show("p self.when", actor="another").text == "'init'\n"
        root.let_go(actor="another")
        with pytest.raises(ActorError, match="not built"):
            built.get(WAIT)
    procs = proc_mesh(gpus=1, setup=failing_setup)
    with desk() as root:
        root.ask(SetModes({"": "on"}))
        built = procs.spawn("third", Fails)
        stop = root.stopped(actor="third")
        assert (stop.endpoint, stop.place.function) == ("__init__", "failing_setup")
        assert stop.text.startswith("OSError: no device gpu7\n")
        assert root.show("p device", actor="third").text == "'gpu7'\n"
        root.let_go(actor="third")
        with pytest.raises(ActorError, match="no device gpu7"):
            built.get(WAIT)


def test_an_abort_is_no_failure() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Busy).get(WAIT)
    with desk() as root:
        root.ask(SetModes({"worker": "on"}))
        answer: Future[Any] = worker.fail.call_one()
        root.stopped()
        root.let_go()
        with pytest.raises(ActorError):
            answer.get(WAIT)
        answer = worker.tight.call_one()
        while root.request_stop().state == "idle":
            pass
        root.stopped()
        root.let_go("q")
        with pytest.raises(ActorError, match="a person aborted"):
            answer.get(WAIT)
        root.event(Ended)
        assert root.quiet(Stopped)


def dumps() -> list[Path]:
    return sorted((Path(start_root().run.run_directory) / "post-mortem").glob("*"))


def test_a_failure_is_written_down() -> None:
    worker = proc_mesh(hosts=1, gpus=2, name="train").spawn("worker", Fails).get(WAIT)
    with desk() as root:
        for rank in (0, 1):
            root.ask(SetModes({"": "dump"}), rank)
        with pytest.raises(ActorError, match="second"):
            worker.slice(gpus=1).fail.call_one().get(WAIT)
        (path,) = dumps()
        assert path.name.startswith("train-")
        assert path.stat().st_mode & 0o777 == 0o600
        document = read_dump(path)
        assert document.actor == "worker"
        assert document.rank == 1
        assert document.endpoint == "fail"
        assert document.coords == {"hosts": 0}
        assert document.exception.type == "ValueError"
        assert document.exception.message == "second"
        assert document.exception.chain == [LinkedError("KeyError", "'first'", "cause")]
        assert "The above exception was the direct cause" in document.exception.traceback
        frame = document.frames[-1]
        assert frame.function == "fail"
        assert frame.source[frame.line - frame.first_line].strip() == 'raise ValueError("second") from error'
        assert frame.locals["odd"] == "*** Awkward.__repr__ raised RuntimeError: no repr"
        assert frame.locals["many"].startswith("[0, 1, 2")
        assert len(frame.locals["many"]) < 200
        with pytest.raises(ActorError, match="second"):
            worker.fail.call().get(WAIT)
        wait_until(lambda: len(dumps()) == 3, WAIT)  # the call ends with the first failure


def test_a_dump_that_cannot_be_written_changes_nothing() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Fails).get(WAIT)
    with desk() as root:
        root.ask(SetModes({"": "dump"}))
        (Path(start_root().run.run_directory) / "post-mortem").write_text("in the way")
        for _ in range(2):
            with pytest.raises(ActorError, match="second") as caught:
                worker.fail.call_one().get(WAIT)
            assert "in the way" not in str(caught.value)


SCRIPT = """
import meshrt
class A(meshrt.Actor):
    @meshrt.endpoint
    def fail(self, value):
        local = value * 2
        raise ValueError(f"bad {value}")
worker = meshrt.proc_mesh(gpus=2).spawn("a", A)
for _ in range(2):
    try:
        worker.fail.call(4).get(20)
    except meshrt.ActorError as error:
        print("got", error.remote.type if hasattr(error, "remote") else type(error).__name__)
"""


def test_the_environment_turns_it_on(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    done = run_python(str(script), env=environment(MESHRT_POST_MORTEM="dump", MESHRT_RUNS=str(tmp_path)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("got") == 2
    files = list(tmp_path.glob("*/post-mortem/*.json"))
    assert len(files) >= 2
    document = read_dump(files[0])
    known = document.frames[-1].locals
    assert (known["value"], known["local"]) == ("4", "8")
    assert "local = value * 2" in "\n".join(document.frames[-1].source)
    assert done.stderr.count("look at it with: python -m meshrt.debug --open ") >= 1


def questions(root: Desk, expression: str, command: str = "p", rank: int = 0) -> Value:
    return root.ask(Evaluate("worker", command, expression), rank).same


def test_expressions_in_running_actors() -> None:
    worker = proc_mesh(gpus=1).spawn("worker", Busy).get(WAIT)
    with desk() as root:
        answer = worker.tight.call_one()
        state = DictFacts({"'turns'": "0"})
        found = root.ask(Evaluate("worker", "p", "self.state"))
        assert (found.same, found.per) == (Value("{'turns': 0}", error=False), state)
        found = root.ask(Evaluate("worker", "p", "1 / 8"))
        assert (found.same, found.per) == (Value("0.125", error=False), NumberFacts(0.125))
        assert questions(root, "line_of").text.startswith("<function line_of")
        unknown = questions(root, "nothing")
        assert unknown.error and unknown.text.startswith(
            "NameError: name 'nothing' is not defined (the actor is running: only "
        )
        assert questions(root, "x = 1").text.startswith("SyntaxError: invalid syntax")
        assert questions(root, "sys.exit(3)") == Value("SystemExit: 3", error=True)
        assert questions(root, "print('shown')").text == "shown\nNone"
        assert questions(root, "input()").text.startswith("EOFError")
        assert questions(root, "breakpoint()").text == "None"
        assert questions(root, "self.short", "whatis").text == "Method short"
        assert questions(root, "Busy", "whatis").text == "Class tests.debug.busy.Busy"
        assert "def count(state" in questions(root, "count", "source").text
        assert questions(root, "{1: 'a' * 60, 2: 'b' * 60}", "pp").text.count("\n") == 1
        with pytest.raises(MeshError, match="'n' does not work on a running actor"):
            questions(root, "1", "n")
        with pytest.raises(MeshError, match="'other' is not on this rank"):
            root.ask(Evaluate("other", "p", "1"))
        hanging = [root.begin(Evaluate("worker", "p", "threading.Event().wait()")) for _ in range(5)]
        assert questions(root, "2 + 2").text == "4"
        assert not any(one.done() for one in hanging)
        while root.request_stop().state == "idle":
            pass
        root.stopped()
        names = root.ask(CompleteAtRank("worker", "", "p self.st")).names
        assert names == ["self.state"]
        root.show("!go = False")
        root.let_go()
        assert answer.get(WAIT) == "done"
        assert root.ask(CompleteAtRank("worker", "", "p line_")).names == ["line_of"]
