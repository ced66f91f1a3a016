"""The broker on a fake root: every order of events that real ranks could produce, without one."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.errors import MeshError, SelectionError
from meshrt.hooks.facts import Body
from meshrt.selection import Shape, Slice, fold_ranks
from tests.support.untyped import Group
from tests.unit.debug.root_fakes import FakeRoot, FakeTerminal


@pytest.fixture
def root() -> FakeRoot:
    return FakeRoot()


def cast(root: FakeRoot, me: FakeTerminal, ranks: str, line: str = "p x") -> Body:
    return root.ask(me, "debug.cast", actor="debugee", ranks=ranks, line=line)


def kinds(body: Body) -> dict[str, str]:
    return {answer["kind"]: fold_ranks(answer["ranks"]) for answer in body["answers"]}


def test_one_line_per_wave(root: FakeRoot) -> None:
    root.stop(0, 1, 2)
    root.advance(0.04)
    root.stop(*range(3, 8))
    root.advance(0.04)
    assert root.said == []
    root.advance(1)
    assert root.said == ["8 ranks of debugee stopped at actors.py:16 (work); python -m meshrt.debug"]
    root.event("resumed", 3, 5, how="continue")
    root.stop(3, place=["/src/actors.py", 20, "other"])
    root.stop(5)
    root.advance(1)
    assert root.said[1:] == [
        "rank 3 of debugee stopped at actors.py:20 (other), rank 5 at actors.py:16 (work); python -m meshrt.debug"
    ]


def test_some_ranks_are_named_and_failures_stand_apart(root: FakeRoot) -> None:
    root.stop(1, 3, 5)
    root.stop(2, reason="post-mortem", text="ValueError: bad\n> there\n", headline="ValueError: bad")
    root.advance(1)
    assert root.said == [
        "rank 2 of debugee failed at actors.py:16 (work): ValueError: bad; python -m meshrt.debug",
        "3 ranks of debugee (1,3,5) stopped at actors.py:16 (work); python -m meshrt.debug",
    ]


@pytest.mark.row("D7")
def test_reminders_while_nobody_looks(root: FakeRoot) -> None:
    root.stop(0)
    root.advance(1)
    root.advance(30)
    assert root.said[1].startswith("reminder: rank 0 of debugee stopped at actors.py:16 (work), for ")
    me = root.terminal()
    root.advance(600)
    assert len(root.said) == 2
    root.client_gone[0](me)
    root.advance(700)
    assert len(root.said) > 2
    root.event("ended", 0)
    said = len(root.said)
    root.advance(5000)
    assert len(root.said) == said


def test_terminals_hear_what_they_did_not_cause(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal()
    root.stop(0, 1)
    root.advance(1)
    assert [len(client.of("debug.notice")) for client in (me, other)] == [1, 1]
    root.ask(me, "debug.attach", actor="debugee", rank="0")
    root.ask(me, "debug.send", line="n")
    root.event("resumed", 0, how="step")
    root.stop(0)
    root.advance(1)
    assert [len(client.of("debug.notice")) for client in (me, other)] == [1, 1]


def test_an_answer_is_not_shown_again_to_a_terminal_that_attaches(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal()

    def shown(terminal: FakeTerminal, rank: int = 0) -> object:
        text = root.ask(terminal, "debug.attach", actor="debugee", rank=str(rank))["text"]
        root.ask(terminal, "debug.detach")
        return text

    root.stop(0, 1, text="> there\n")
    assert shown(other) == "> there\n"
    root.ask(me, "debug.print", actor="debugee", ranks="ranks(0)", command="p", expression="x")
    root.stop(0, text="7\n")
    assert (shown(other), shown(me)) == ("", "")
    job = cast(root, me, "ranks(1)", "sleep()")["job"]
    root.ask(me, "debug.leave", job=job)
    root.stop(1, text="at last\n")
    assert shown(other, 1) == "at last\n"  # no terminal has shown it
    cast(root, me, "ranks(0)", "c")
    root.event("resumed", 0, how="continue", text="on\n")
    root.stop(0, text="> here\n")
    assert shown(other) == "> here\n"


def test_cast_gathers_equal_answers(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(*range(8))
    first = cast(root, me, "ranks(:)")
    assert first["waiting"] == {"debugee": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert [(rank, body["line"], body["seq"]) for _, rank, body in root.sent] == [(rank, "p x", 1) for rank in range(8)]
    root.stop(*range(7), text="3\n")
    root.advance(0.01)
    (report,) = me.of("debug.report")
    answer = {
        "actor": "debugee",
        "kind": "answered",
        "text": "3\n",
        "ranks": [0, 1, 2, 3, 4, 5, 6],
        "failed": False,
        "facts": None,
    }
    assert report["answers"] == [answer]
    assert report["waiting"] == {"debugee": [7]}
    root.stop(7, text="8\n")
    last = me.of("debug.report")[-1]
    assert last["done"]
    assert last["answers"][0]["text"] == "8\n"
    root.advance(1)
    assert len(me.of("debug.report")) == 2


def test_what_becomes_of_each_rank(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal(pid=99)
    root.stop(*range(7))
    root.ask(other, "debug.attach", actor="debugee", rank="0")
    cast(root, me, "ranks(1)")  # has not answered
    root.event("resumed", 2, how="continue")
    first = cast(root, me, "ranks(all)", "c")
    assert kinds(first) == {"held": "0", "busy": "1", "running": "2", "missing": "7"}
    root.event("resumed", 3, how="continue")
    root.event("resumed", 4, how="quit")
    root.event("resumed", 5, how="step")
    root.event("ended", 5)
    root.kill(6, "was killed by SIGKILL")
    body = me.of("debug.report")[-1]
    assert body["done"]
    assert kinds(body) == {"resumed": "3", "aborted": "4", "ended": "5", "gone": "6"}


def test_a_step_is_answered_at_the_next_stop(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0)
    cast(root, me, "ranks(0)", "n")
    root.event("resumed", 0, how="step")
    root.advance(1)
    assert me.of("debug.report") == []
    root.stop(0, text="> there\n")
    assert me.of("debug.report")[0]["answers"][0]["text"] == "> there\n"


def test_a_left_cast_is_announced_when_it_answers(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1)
    root.advance(1)
    number = cast(root, me, "ranks(0)")["job"]
    root.ask(me, "debug.leave", job=number)
    root.stop(0)
    root.advance(1)
    assert len(me.of("debug.notice")) == 2
    assert me.of("debug.report") == []


def test_a_terminal_that_goes_changes_nothing(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal()
    root.stop(0, 1)
    root.ask(me, "debug.attach", actor="debugee", rank="0")
    root.ask(me, "debug.send", line="p x")
    root.client_gone[0](me)
    pushed = len(me.pushed)
    root.stop(0, text="5\n")
    body = root.ask(other, "debug.attach", actor="debugee", rank="0")
    assert (body["text"], body["session"], body["prompt"]) == ("5\n", "stopped", "(Pdb) ")
    assert len(me.pushed) == pushed


def test_one_writer(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal(pid=99)
    root.stop(0)
    root.ask(other, "debug.attach", actor="debugee", rank="0")
    with pytest.raises(MeshError, match="held by the terminal of process 99; attach --steal"):
        root.ask(me, "debug.attach", actor="debugee", rank="0")
    root.ask(me, "debug.attach", actor="debugee", rank="0", steal=True)
    assert other.of("debug.attached")[-1]["kind"] == "stolen"
    with pytest.raises(MeshError, match="no longer attached"):
        root.ask(other, "debug.send", line="q")
    root.ask(me, "debug.send", line="p x")
    with pytest.raises(MeshError, match="not at a prompt"):
        root.ask(me, "debug.send", line="p x")


def test_attaching_takes_a_rank_out_of_a_cast(root: FakeRoot) -> None:
    me, other = root.terminal(), root.terminal(pid=99)
    root.stop(0)
    cast(root, me, "ranks(0)")
    assert root.ask(other, "debug.attach", actor="debugee", rank="0")["session"] == "busy"
    assert kinds(me.of("debug.report")[-1]) == {"held": "0"}
    root.stop(0, text="3\n")
    assert other.of("debug.attached")[-1]["text"] == "3\n"


def test_output_of_a_long_command_is_passed_on_and_kept(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0)
    root.ask(me, "debug.attach", actor="debugee", rank="0")
    root.ask(me, "debug.send", line="work()")
    root.event("output", 0, text="one\n")
    root.stop(0, text="two\n")
    assert [body["text"] for body in me.of("debug.attached")] == ["one\n", "two\n"]
    root.ask(me, "debug.detach")
    assert root.ask(me, "debug.attach", actor="debugee", rank="0")["text"] == "", "it has shown that"
    root.ask(me, "debug.detach")
    other = root.terminal(pid=99)
    assert root.ask(other, "debug.attach", actor="debugee", rank="0")["text"] == "one\ntwo\n"
    root.ask(other, "debug.detach")
    root.event("output", 0, text="three\n")
    assert root.ask(me, "debug.attach", actor="debugee", rank="0")["text"] == "one\ntwo\nthree\n"


def test_views_and_base_ranks(root: FakeRoot) -> None:
    me = root.terminal()
    right = Shape(("dp", "tp"), Slice(offset=2, sizes=[2, 2], strides=[4, 1]))
    root.stop(2, 3, 6, 7, view=right.to_wire())
    rows = root.ask(me, "inspect.list")["rows"]
    assert [(row["rank"], row["coords"]) for row in rows][2] == (6, {"dp": 1, "tp": 0})
    assert cast(root, me, "ranks(dp=1)")["waiting"] == {"debugee": [6, 7]}
    assert cast(root, me, "ranks(gpus=3)")["waiting"] == {"debugee": [3]}
    assert kinds(cast(root, me, "ranks(0, 2)")) == {"missing": "0"}
    with pytest.raises(SelectionError, match="no dimension 'pp'"):
        cast(root, me, "ranks(pp=1)")


def test_a_selection_means_the_same_whatever_has_stopped(root: FakeRoot) -> None:
    """A call to a part of a mesh, or to one rank, is no other numbering."""
    me = root.terminal()
    part = Shape(("hosts", "gpus"), Slice(offset=2, sizes=[2, 2], strides=[4, 1]))
    root.stop(2, 7, view=part.to_wire())
    root.stop(4, view=Shape.unity().to_wire())
    rows = root.ask(me, "inspect.list")["rows"]
    assert [row["coords"] for row in rows] == [{"hosts": h, "gpus": g} for h, g in ((0, 2), (1, 0), (1, 3))]
    asked = cast(root, me, "ranks(gpus=2)")
    assert (asked["waiting"], kinds(asked)) == ({"debugee": [2]}, {"missing": "6"})
    asked = cast(root, me, "ranks(hosts=1)")
    assert (asked["waiting"], kinds(asked)) == ({"debugee": [4, 7]}, {"missing": "5-6"})


def test_the_only_actor_need_not_be_named(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1)
    assert root.ask(me, "debug.cast", actor="", ranks="ranks(1)", line="n")["waiting"] == {"debugee": [1]}
    two = FakeRoot(("m1", "left", {"n": 2}, ("debugee", "solo")))
    with pytest.raises(MeshError, match=r"name the actor before the ranks: debugee or solo"):
        two.ask(two.terminal(), "debug.cast", actor="", ranks="ranks(1)", line="n")


def test_names() -> None:
    root = FakeRoot(
        ("m1", "left", {"n": 2}, ("debugee", "solo")),
        ("m2", "right", {"n": 2}, ("debugee",)),
    )
    me = root.terminal()
    root.stop(0, mesh="m1")
    root.stop(0, mesh="m2", text="right\n")
    assert [row["actor"] for row in root.ask(me, "inspect.list")["rows"]] == ["debugee@left", "debugee@right"]
    with pytest.raises(MeshError, match="name one: debugee@left or debugee@right"):
        root.ask(me, "debug.attach", actor="debugee", rank="0")
    assert root.ask(me, "debug.attach", actor="debugee@m2", rank="0")["text"] == "right\n"
    assert root.ask(me, "debug.attach", actor="right", rank="0")["text"] == "right\n"  # the mesh has no other one
    with pytest.raises(MeshError, match="mesh left has 2 actors; name one: debugee@left or solo"):
        root.ask(me, "debug.attach", actor="left", rank="0")
    with pytest.raises(MeshError, match=r"no actor '1'; write a rank as ranks\(1\); there are: "):
        root.ask(me, "debug.attach", actor="1", rank="0")
    with pytest.raises(MeshError, match="no actor 'sol'; did you mean 'solo'"):
        root.ask(me, "debug.attach", actor="sol", rank="0")
    root.event("ended", 0, mesh="m1")
    assert root.ask(me, "debug.attach", actor="debugee", rank="0")["actor"] == "debugee@right"


@pytest.mark.parametrize("rank", ["9", "-9", "x", "0,1", "", "hosts=7"])
def test_attach_wants_one_rank(root: FakeRoot, rank: str) -> None:
    me = root.terminal()
    root.stop(0, 1)
    with pytest.raises(MeshError):
        root.ask(me, "debug.attach", actor="debugee", rank=rank)
    assert root.ask(me, "debug.attach", actor="debugee", rank="hosts=0, gpus=1")["rank"] == 1


def test_threads_are_sessions_of_their_own(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, thread="Helper")
    assert [row["actor"] for row in root.ask(me, "inspect.list")["rows"]] == ["debugee/Helper"]
    with pytest.raises(MeshError, match="a thread of it is stopped: attach debugee/Helper 0"):
        root.ask(me, "debug.attach", actor="debugee", rank="0")
    assert root.ask(me, "debug.attach", actor="debugee/Helper", rank="0")["rank"] == 0
    root.ask(me, "debug.send", line="c")
    assert root.sent[-1][2]["thread"] == "Helper"
    root.stop(0)
    root.event("resumed", 0, how="continue")
    root.stop(0, thread="Helper")
    said = "rank 0 was resumed and is running; a thread of it is stopped: attach debugee/Helper 0"
    with pytest.raises(MeshError, match=said):
        root.ask(me, "debug.attach", actor="debugee", rank="0")


def test_a_state_is_suggested_where_one_may_be_typed(root: FakeRoot) -> None:
    me = root.terminal()
    with pytest.raises(MeshError, match="no actor 'stoped'; did you mean 'stopped'"):
        root.ask(me, "inspect.list", state="all", actor="stoped")
    for operation, facts in (
        ("debug.print", {"command": "p", "expression": "x"}),
        ("inspect.list", {"state": "dead"}),
        ("debug.break", {"place": "a.py:3"}),
    ):
        with pytest.raises(MeshError, match="no actor 'stoped'; there are: debugee"):
            root.ask(me, operation, actor="stoped", **facts)


def test_continue_is_one_action_for_all(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1, prompt=">>> ")
    root.ask(me, "debug.continue")
    assert [(body["resume"], body["line"]) for _, _, body in root.sent] == [(True, None)] * 2
    assert root.ask(me, "debug.continue")["answers"] == [
        {
            "actor": "debugee",
            "kind": "busy",
            "text": "still running 'continue'",
            "ranks": [0, 1],
            "failed": False,
            "facts": None,
        }
    ]


def test_status_and_the_dead(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1)
    root.kill(1, "was killed by SIGSEGV")
    root.advance(1)
    assert me.of("debug.notice")[-1]["text"] == "rank 0 of debugee stopped at actors.py:16 (work)"
    assert me.of("debug.notice")[-2]["text"] == "rank 1 of debugee has ended: was killed by SIGSEGV"
    body = root.ask(me, "inspect.status")
    assert body["meshes"][0]["gone"] == {"was killed by SIGSEGV": [1]}
    states = {group["state"]: group["ranks"] for group in body["groups"]}
    assert states == {"stopped": [0], "dead": [1], "running": [2, 3, 4, 5, 6, 7]}
    assert cast(root, me, "ranks(stopped)")["waiting"] == {"debugee": [0]}
    assert kinds(cast(root, me, "ranks(dead)")) == {"gone": "1"}
    with pytest.raises(MeshError, match="rank 1 has ended: it was killed by SIGSEGV"):
        root.ask(me, "debug.attach", actor="debugee", rank="1")


def test_source_is_served(root: FakeRoot) -> None:
    assert (
        "def test_source_is_served"
        in (root.rank_operations["debug.source"]("m1", 0, {"filename": __file__}) or {})["text"]
    )
    assert root.rank_operations["debug.source"]("m1", 0, {"filename": "<nowhere>"}) == {"text": None}


def test_the_debugger_opens_by_itself(root: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.broker.autoentry._at_terminal", lambda: True)
    root.stop(0)
    root.advance(1)
    assert root.interjected == []
    root.waits = True  # the script comes to its get() a moment later
    root.advance(1)
    assert len(root.interjected) == 1
    root.stop(1)
    root.advance(5)
    assert len(root.interjected) == 1


def test_it_does_not_open_beside_another_terminal(root: FakeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.broker.autoentry._at_terminal", lambda: True)
    root.waits = True
    me = root.terminal()
    root.stop(0)
    root.advance(2)
    assert root.interjected == []
    root.client_gone[0](me)
    root.advance(2)
    assert len(root.interjected) == 1


def test_a_debugger_that_cannot_be_opened_is_not_the_scripts_problem(
    root: FakeRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshrt.debug.broker.autoentry._at_terminal", lambda: True)
    monkeypatch.setattr("meshrt.debug.prompt.entry.enter_here", lambda waited: 1 / 0)
    root.waits = True
    root.stop(0)
    root.advance(1)
    waited: Any = None
    root.interjected[0](waited)
    assert "could not be opened here: ZeroDivisionError" in root.said[-1]
    root.stop(1)
    root.advance(1)
    root.event("resumed", 0, 1, how="continue")
    root.interjected[1](waited)  # it comes to its turn when nothing stands any more
    assert "could not be opened" not in root.said[-1]


def test_a_program_that_listens_is_told(root: FakeRoot) -> None:
    program, script = root.terminal(person=False, listens=True), root.terminal(person=False, pid=99)
    root.stop(0)
    root.kill(6, "was killed by SIGKILL")
    root.advance(1)
    assert [body["text"] for body in program.of("debug.notice")] == [
        "rank 6 of debugee has ended: was killed by SIGKILL",
        "rank 0 of debugee stopped at actors.py:16 (work)",
    ]
    assert script.of("debug.notice") == []


def test_whether_a_line_was_wrong_is_not_read_from_its_text(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1)
    cast(root, me, "ranks(0:2)")
    root.stop(0, text="*** mine\n")
    root.stop(1, text="*** NameError\n", error="NameError")
    root.advance(0.01)
    found = [(answer["ranks"], answer["failed"]) for body in me.of("debug.report") for answer in body["answers"]]
    assert found == [([0], False), ([1], True)]


def test_the_breakpoint_that_stopped_a_rank_is_named(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1, breakpoint=3)
    root.stop(2)
    root.advance(1)
    assert me.of("debug.notice")[-1]["text"] == (
        "2 ranks of debugee (0-1) stopped at actors.py:16 (work) by breakpoint 3, rank 2 at actors.py:16 (work)"
    )
    assert [row["breakpoint"] for row in root.ask(me, "inspect.list")["rows"]] == [3, 3, 0]


def test_completion_knows_the_ranks_that_stand(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(3, 5)
    assert root.ask(me, "inspect.names")["stopped"] == {"debugee": [3, 5]}


def test_since_when_a_rank_runs(root: FakeRoot) -> None:
    me = root.terminal()

    def since() -> float:
        return float(root.ask(me, "inspect.list", state="all", actor="debugee", ranks="ranks(0)")["rows"][0]["since"])

    before = since()
    root.stop(0)
    root.event("resumed", 0, how="continue")
    resumed = since()
    assert resumed > before
    root.event("ended", 0)
    assert since() == resumed


def test_what_happens_to_running_ranks_is_announced(root: FakeRoot) -> None:
    me = root.terminal()
    root.unhandled[0]("m1", 3, "debugee.work() raised on rank 3; no caller receives the exception")
    root.rank_silent[0]("m1", 5, "busy")
    root.rank_silent[0]("m1", 5, "")
    root.kill(6, "was killed by SIGKILL")
    root.kill(7, "was killed by SIGKILL")
    root.advance(1)
    assert [body["text"] for body in me.of("debug.notice")] == [
        "debugee.work() raised on rank 3; no caller receives the exception",
        "rank 5 of debugee does not answer: C code holds its GIL",
        "rank 5 of debugee answers again",
        "2 ranks of debugee (6-7) have ended: was killed by SIGKILL",
    ]
    assert root.said == []


def answered(*ranks: int, **same: Any) -> Group:
    return Group("m1", ranks, "answered", same, {})


def test_print_asks_those_that_stand_and_those_that_run(root: FakeRoot) -> None:
    me = root.terminal()
    root.stop(0, 1)
    root.stop(2, prompt=">>> ")
    root.kill(3, "exited with code 1")
    first = root.ask(me, "debug.print", actor="debugee", ranks="", command="p", expression="x")
    assert kinds(first) == {"gone": "3", "busy": "2"}
    assert first["waiting"] == {"debugee": [0, 1, 4, 5, 6, 7]}
    assert [body["line"] for _, _, body in root.sent] == ["p x", "p x"]
    root.answer("debug.eval", answered(4, 5, text="3", error=False), done=False)
    root.answer(
        "debug.eval",
        answered(6, text="NameError", error=True),
        Group("m1", (7,), "silent", {"state": "busy", "stack": ""}, {}),
    )
    root.stop(0, 1, text="3\n")
    root.advance(0.01)
    found = [
        (answer["kind"], answer["ranks"], answer["text"])
        for body in me.of("debug.report")
        for answer in body["answers"]
    ]
    assert found == [
        ("answered", [4, 5], "3"),
        ("answered", [6], "*** NameError"),
        ("silent", [7], "C code holds its GIL"),
        ("answered", [0, 1], "3\n"),
    ]
    assert me.of("debug.report")[-1]["done"]


def test_watchers_see_what_others_type(root: FakeRoot) -> None:
    me, other, script = root.terminal(), root.terminal(pid=99), root.terminal(person=False, pid=100)
    root.stop(0, 1)
    root.advance(1)
    root.ask(other, "debug.attach", actor="debugee", rank="0", typed="attach debugee 0")
    root.ask(other, "debug.send", line="n", typed="n")
    root.ask(script, "debug.cast", actor="debugee", ranks="ranks(1)", line="c", typed="cast debugee ranks(1) c")
    root.ask(other, "inspect.list", typed="list")
    with pytest.raises(MeshError):
        root.ask(other, "debug.attach", actor="debugee", rank="7", typed="attach debugee 7")
    assert [body["text"] for body in me.of("debug.notice")][1:] == [
        "process 99: attach debugee 0",
        "process 99 at debugee 0: n",
        "process 100: cast debugee ranks(1) c",
    ]
    assert [body["text"] for body in other.of("debug.notice")][1:] == ["process 100: cast debugee ranks(1) c"]
    assert script.of("debug.notice") == []
    (row, _) = root.ask(me, "inspect.list")["rows"]
    assert (row["rank"], row["holder"]) == (0, 99)
