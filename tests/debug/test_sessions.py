"""Stops of real ranks, and what a person does with them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from meshrt import ActorError, ActorMesh, proc_mesh
from meshrt.debug.operations import JobReport
from meshrt.debug.prompt.answers import Answers
from tests.debug.actors import Asynchronous, Debugee, Stubborn, line_of
from tests.debug.harness import attached, person
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_program

WAIT = 20


def spawn(**sizes: Any) -> ActorMesh[Debugee]:
    return proc_mesh(**sizes).spawn("debugee", Debugee).get(WAIT)


def test_look_at_sixteen_ranks_and_let_them_go() -> None:
    mesh = spawn(hosts=4, gpus=4)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        table = me("list")
        assert table.count("| debugee ") == 16
        assert "| debugee      |     13 | {'hosts': 3, 'gpus': 1} | " in table
        assert [row["rank"] for row in me.rows()] == list(range(16))
        assert {row["line"] for row in me.rows()} == {line_of("work")}
        assert me("attach debugee 13").endswith("-> breakpoint()  # @work\n")
        assert me.prompt == "(debugee 13 hosts=3,gpus=1) "
        assert f"({line_of('after')})work()" in me("n")
        assert "--Call--" in me("s")
        assert me("p value") == "10\n"
        me("detach")
        assert me("cast debugee ranks(!13) p rank // 8") == "[0-7] 0\n[8-12,14-15] 1\n"
        answer = me("cast debugee ranks(8:) p rank // 8")  # rank 13 stands in another function
        assert answer.startswith(
            "[8-12,14-15] 1\n[13] *** NameError: name 'rank' is not defined (looked up where the rank "
        )
        assert "rank is known in work(): cast ACTOR ranks(...) u 1)\n" in answer
        assert me("cast debugee ranks(0:4) p nothing").startswith("[0-3] *** NameError")
        assert me("cast debugee ranks(hosts=2:, gpus=(0,3)) n").startswith("[8,11-12,15]\n> ")
        assert me("continue") == "16 ranks of debugee (0-15): resumed\n"
    assert result.get(WAIT).values() == [20 + rank for rank in range(16)]


def test_the_same_person_again_and_again() -> None:
    mesh = spawn(gpus=2)
    for _ in range(3):
        result = mesh.work.call()
        with person() as me:
            me.wait("debugee")
            assert "2 ranks" in me("continue")
        assert result.get(WAIT).values() == [20, 21]
    with person() as me:
        assert me("list") == "nothing is stopped\n"
        assert me("continue") == "nothing is stopped\n"
        # Until it is told that the call has ended, the rank is "running": its result comes another way.
        wait_until(lambda: "is not stopped" in me("attach debugee 0"), WAIT)


def test_set_trace_of_pdb_stops_as_breakpoint_does() -> None:
    result = spawn(gpus=2).set_trace.call()
    with person() as me:
        me.wait("debugee")
        assert {row["line"] for row in me.rows()} == {line_of("set_trace")}
        assert me("cast debugee ranks(:) p rank") == "[0] 0\n[1] 1\n"
        me("continue")
    assert result.get(WAIT).values() == [0, 1]


def test_stops_are_announced_once_per_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.broker.notices.QUIET_SECONDS", 1.0)  # a loaded machine splits a wave otherwise
    mesh = spawn(gpus=4)
    with person() as me:
        me("status")
        result = mesh.loop.call(2)
        me.heard(f"4 ranks of debugee stopped at actors.py:{line_of('loop')} (loop)")
        me.wait("debugee")
        me("continue")
        me.wait("debugee")
        me("continue")
        result.get(WAIT)
        waves = [notice for notice in me.terminal.notices if "stopped at" in notice]
        assert len(waves) <= 2, waves


@pytest.mark.row("D6")
def test_only_some_ranks_stop() -> None:
    mesh = spawn(hosts=2, gpus=4)
    result = mesh.some.call([2, 5])
    with person() as me:
        me.wait("debugee", "ranks(2, 5)")
        assert [row["rank"] for row in me.rows()] == [2, 5]
        answer = me("cast debugee ranks(all) p rank")
        assert "[2] 2\n[5] 5\n" in answer
        assert "6 ranks of debugee (0-1,3-4,6-7): not stopped" in answer
        assert "rank 0 of debugee: not stopped" in me("cast debugee ranks(0) p rank")
        assert not me.ok
        assert "debugee rank 0 is not stopped" in me("attach debugee 0")
        me("cast debugee ranks(stopped) c")
    assert result.get(WAIT).values() == list(range(8))


def test_clear_words_for_what_is_not_there() -> None:
    mesh = spawn(hosts=2, gpus=2)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        assert "no actor 'debuge'; did you mean 'debugee'?" in me("attach debuge 1")
        assert "rank 7 does not exist" in me("attach debugee 7")
        assert "no dimension 'host'" in me("cast debugee ranks(host=1) p 1")
        assert "gpus=5 does not exist" in me("cast debugee ranks(gpus=5) p 1")
        assert "selects no rank" in me("cast debugee ranks(0 & 1) p 1")
        assert "no command 'lst'; did you mean 'list'?" in me("lst")
        assert "pdb" in me("n")
        assert not me.ok
        me("continue")
    result.get(WAIT)


def test_a_slice_shows_its_coordinates_and_the_base_rank() -> None:
    mesh = spawn(hosts=2, gpus=3)
    first = mesh.slice(gpus=slice(1, 3)).rename(hosts="dp", gpus="tp").work.call()
    with person() as me:
        me.wait("debugee", "ranks(1, 2, 4, 5)")
        assert [(row["rank"], row["coords"]) for row in me.rows()] == [
            (1, {"dp": 0, "tp": 0}),
            (2, {"dp": 0, "tp": 1}),
            (4, {"dp": 1, "tp": 0}),
            (5, {"dp": 1, "tp": 1}),
        ]
        assert me("cast debugee ranks(dp=1) p 1") == "[4-5] 1\n"
        assert me("cast debugee ranks(hosts=0, gpus=2) p 1") == "[2] 1\n"  # the dims before the rename
        assert me("cast debugee ranks(dp=1, gpus=1) p 1") == "[4] 1\n"
        me("attach debugee dp=1,tp=0")
        assert me.prompt == "(debugee 4 dp=1,tp=0) "
        me("detach")
        me("continue")
    assert sorted(first.get(WAIT).values()) == [20, 21, 22, 23]


def test_two_slices_of_one_mesh_are_two_sessions() -> None:
    mesh = spawn(gpus=2)
    one, two = mesh.slice(gpus=0).work.call_one(1), mesh.slice(gpus=1).work.call_one(2)
    with person() as me:
        me.wait("debugee")
        assert me("cast debugee ranks(:) p value") == "[0] 1\n[1] 2\n"
        me("cast debugee ranks(1) c")
        assert two.get(WAIT) == 4
        assert [row["rank"] for row in me.rows()] == [0]
        me("continue")
    assert one.get(WAIT) == 2


def test_two_meshes_with_one_actor_name() -> None:
    with proc_mesh(n=2, name="left") as left, proc_mesh(n=2, name="right") as right:
        results = [mesh.spawn("debugee", Debugee).get(WAIT).work.call(value) for value, mesh in ((1, left), (2, right))]
        with person() as me:
            me.wait("debugee@left")
            me.wait("debugee@right")
            assert me("list").count("| debugee@left  |") == 2
            assert "2 meshes have an actor 'debugee'; name one: debugee@left or debugee@right" in me("attach debugee 0")
            assert me("cast debugee@right ranks(:) p value") == "[0-1] 2\n"
            me("attach debugee@left 1")
            assert me("p value") == "1\n"
            me("c")
            assert "rank 0 of debugee@left: resumed" in me("continue")
        assert [result.get(WAIT).values()[0] for result in results] == [2, 4]


def test_two_actors_of_one_rank() -> None:
    mesh = proc_mesh(n=2)
    one, two = mesh.spawn("one", Debugee).get(WAIT), mesh.spawn("two", Debugee).get(WAIT)
    results = one.work.call(1), two.work.call(2)
    with person() as me:
        me.wait("one")
        me.wait("two")
        assert me("cast one ranks(:) p value") == "[0-1] 1\n"
        assert me("cast two ranks(:) p value") == "[0-1] 2\n"
        me("attach two 0")
        assert me("print('two')") == "two\n"
        me("detach")
        me("cast one ranks(:) c")
        assert results[0].get(WAIT).values() == [2, 3]
        me("continue")
    assert results[1].get(WAIT).values() == [4, 5]


@pytest.mark.row("D6")
def test_init_is_stopped_too() -> None:
    mesh = proc_mesh(n=2)
    spawned = mesh.spawn("stubborn", Stubborn, 5)
    with person() as me:
        me.wait("stubborn")
        assert {row["function"] for row in me.rows()} == {"__init__"}
        me("cast stubborn ranks(1) !self.value = 6")
        me("continue")
        assert spawned.get(WAIT).value_of.call().get(WAIT).values() == [5, 6]


@pytest.mark.row("D6")
def test_async_endpoint_steps_over_a_wait() -> None:
    mesh = proc_mesh(n=2).spawn("waits", Asynchronous).get(WAIT)
    result = mesh.work.call(4)
    with attached("waits", 1) as me:
        assert f"({line_of('await')})work()" in me("n")
        assert "--Call--" in me("s")
        assert f"({line_of('fetch')})fetch()" in me("s")
        assert f"({line_of('fetched')})fetch()" in me("s")
        assert "--Return--" in me("r")
        assert f"({line_of('awaited')})work()" in me("n")
        assert me("p got") == "8\n"
        assert me("bt").count("-> ") == 1
        me("detach")
        assert f"({line_of('await')})work()" in me("cast waits ranks(0) n")
        assert f"({line_of('awaited')})work()" in me("cast waits ranks(0) n")
        me("continue")
    assert result.get(WAIT).values() == [9, 9]
    assert mesh.ping.call().get(WAIT).values() == ["pong", "pong"]


@pytest.mark.row("D6")
def test_thread_of_an_endpoint() -> None:
    mesh = spawn(gpus=2)
    result = mesh.thread.call()
    with person() as me:
        me.wait("debugee/Helper", "ranks(:)")
        assert me("list").count("| debugee/Helper |") == 2
        assert "attach debugee/Helper 1" in me("attach debugee 1")
        me("attach debugee/Helper 1")
        assert f"({line_of('thread')})in_thread()" in me("bt")
        me("detach")
        me("cast debugee/Helper ranks(:) c")
    assert result.get(WAIT).values() == [[7], [7]]


def test_quit_asks_and_aborts_one_endpoint() -> None:
    mesh = spawn(gpus=2)
    result = mesh.work.call()
    with attached("debugee", 1) as me:
        me.terminal.answers.put("n")
        assert "not aborted" in me("q")
        assert me("p rank") == "1\n"
        me.terminal.answers.put("y")
        assert "work has ended" in me("q")
        assert me.prompt == "meshrt_dbg> "
        with pytest.raises(ActorError, match="a person aborted this endpoint") as caught:
            result.get(WAIT)
        assert caught.value.rank == 1
        me("continue")
    assert mesh.pid.call().get(WAIT)


def test_post_mortem_after_a_stop() -> None:
    mesh = spawn(gpus=3)
    result = mesh.fail.call()
    with person() as me:
        me.wait("debugee")
        me("cast debugee ranks(1) c")
        me.heard("rank 1 of debugee failed at actors.py")
        me.wait("debugee")
        assert "stopped on an exception; `c` passes the exception to the caller: debugee 1" in me("list")
        assert "ValueError: rank 1 is bad" in me("attach debugee 1")
        assert f"({line_of('raise')})fail()" in me("bt")
        assert me("p rank") == "1\n"
        me("q")  # delivers the exception: there is nothing left to abort
        with pytest.raises(ActorError, match="rank 1 is bad"):
            result.get(WAIT)
        me("continue")
        me("continue")


def test_no_post_mortem_without_a_stop() -> None:
    mesh = spawn(gpus=2)
    with pytest.raises(ActorError, match="no stop before"):
        mesh.fail_without_stop.call().get(WAIT)


@pytest.mark.row("D6")
def test_prompts_within_a_prompt() -> None:
    mesh = spawn(gpus=2)
    result = mesh.work.call()
    with attached("debugee", 0) as me:
        me("interact")
        assert me.prompt == ">>> "
        assert me("rank + 1") == "1\n"
        me("exit()")
        me("name = input('who? ')")
        assert me.prompt == "who? "
        me("ada")
        assert me("p name") == "'ada'\n"
        assert me("print('no newline', end='')") == "no newline\n"
        assert me.prompt.startswith("(debugee 0")
        me("debug double(4)")
        assert me.prompt == "((Pdb)) "
        assert "debugee" in me("status") and me.prompt == "((Pdb)) "  # a line of the mesh
        me("detach")
        assert "42\n((Pdb))" in me("cast debugee ranks(0) p 6 * 7")
        assert me("continue") == "2 ranks of debugee (0-1): resumed\n"
    assert result.get(WAIT).values() == [20, 21]


def test_a_slow_command_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.prompt.attached.COMMAND_SECONDS", 0.5)
    mesh = spawn(gpus=4)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        with monkeypatch.context() as patch:
            add = Answers.add

            def added(answers: Answers, report: JobReport) -> None:
                add(answers, report)
                if answers.pending().startswith("2/4 answered"):  # now the wait is over
                    patch.setattr("meshrt.debug.prompt.repl.HINT_SECONDS", 0.0)
                    patch.setattr("meshrt.debug.prompt.repl.ANSWER_SECONDS", 0.0)

            patch.setattr(Answers, "add", added)
            waits = f"wait_until(Path('{tmp_path}/gate' if rank in (1, 2) else '/').exists, 60)"
            code = f"from pathlib import Path; from tests.support.waiting import wait_until; {waits}"
            answer = me(f"cast debugee ranks(:) {code}")
        assert "2/4 answered, waiting for 1-2; Ctrl-C ends the wait" in answer
        assert not me.ok
        answer = me("cast debugee ranks(:) p 5")
        assert "[0,3] 5\n" in answer
        assert '2 ranks of debugee (1-2): not asked (still running "from pathlib import Path;' in answer
        assert "debugee 1 is running the line (`interrupt debugee ranks(1)` cancels it)" in me("attach debugee 1")
        (tmp_path / "gate").touch()
        me.wait("debugee")
        assert "4 ranks" in me("continue")
    result.get(WAIT)


def test_a_resumed_rank_runs_at_full_speed() -> None:
    mesh = spawn(gpus=1)
    bare = min(mesh.hot.call_one(300_000).get(WAIT) for _ in range(3))
    result = mesh.hot.call_one(-300_000)
    with attached("debugee", 0) as me:
        me("n")
        me("c")
    assert result.get(WAIT) < 5 * bare + 0.05
    assert mesh.hot.call_one(300_000).get(WAIT) < 5 * bare + 0.05


@pytest.mark.row("D3")
def test_deadlines_stand_still_while_a_rank_is_stopped() -> None:
    mesh = spawn(gpus=2)
    result = mesh.work.call()
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.append(result.get(3)))
    with person() as me:
        me.wait("debugee")
        waiting.start()
        assert "no actor 'nobody'" in me("wait nobody 4")  # takes longer than the time-out
        assert waiting.is_alive()
        me("continue")
    waiting.join(WAIT)
    assert got[0].values() == [20, 21]


@pytest.mark.slow
def test_much_text_from_many_ranks() -> None:
    mesh = spawn(gpus=8)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        answer = me("cast debugee ranks(:) p str(rank) * 150_000")
        assert all(f"[{rank}]\n'{str(rank) * 50_000}" in answer for rank in range(8))
        assert answer.count("characters left out") == 8
        me("attach debugee 3")
        shown = me("for i in range(200_000): print(i, 'x' * 50)")
        assert 400_000 < len(shown) < 1_500_000
        assert "characters left out" in shown
        assert shown.endswith(f"199999 {'x' * 50}\n")
        assert me("print('\\udc80 \\U0001f600')") == "\\udc80 \U0001f600\n"
        me("detach")
        me("continue")
    result.get(WAIT)


@pytest.mark.slow
def test_control_characters_of_a_rank_are_shown() -> None:
    mesh = spawn(gpus=1)
    result = mesh.work.call()
    with person() as me:
        me.wait("debugee")
        assert me("cast debugee ranks(0) print('\\x1b[2J\\x07 a\\tb')") == "[0] \\e[2J\\x07 a\tb\n"
        me("attach debugee 0")
        assert me("print('\\x1b[31mred')") == "\\e[31mred\n"
        assert "more characters (print('x' * 200_000) shows all)" in me("p 'x' * 200_000")
        assert len(me("print('x' * 200_000)")) > 200_000
        shown = me("display 'y' * 200_000")
        assert shown.startswith("display 'y'") and "more characters (print('y' * 200_000) shows all)" in shown
        assert len(shown) < 6000
        me("c")
    result.get(WAIT)


def test_attach_shows_the_frame_that_is_selected_and_no_answer_again() -> None:
    mesh = spawn(n=2)
    result = mesh.work.call()
    with attached("debugee", 1) as me:
        me("n")
        assert "--Call--" in me("s")
        me("detach")
        assert "work()" in me("cast debugee ranks(1) u")
        assert "42" in me("cast debugee ranks(1) p 6 * 7")
        shown = me("attach debugee 1")
        assert f"({line_of('after')})work()" in shown and "42" not in shown
        me("detach")
        me("continue")
        assert result.get(WAIT) is not None
