"""The rank side: what a person can do at the prompt of one stopped thread."""

from __future__ import annotations

import bdb
import sys
import time

import pytest

import meshrt.debug.rank.console as console_module
from meshrt.debug.rank_operations import Input
from tests.unit.debug import endpoints
from tests.unit.debug.endpoints import line_of
from tests.unit.debug.fakes import FakeRank


def test_stop_names_the_place(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    stop = rank.stopped()
    assert stop["place"] == [endpoints.__file__, line_of("simple"), "simple"]
    assert (stop["reason"], stop["endpoint"], stop["prompt"]) == ("breakpoint", "simple", "(Pdb) ")
    assert stop["text"] == f"> {endpoints.__file__}({line_of('simple')})simple()\n-> breakpoint()  # @simple\n"
    assert stop["view"] == [["gpus"], 0, [4], [1]]
    assert abs(stop["since"] - time.time_ns() / 1e9) < 60
    assert rank.services.holds == 1
    assert rank.services.flushed == 1
    rank.end()
    assert rank.result == 10
    assert rank.services.holds == 0
    assert rank.traced_after is None


def test_the_others_are_to_stop_before_it_is_known_that_it_has(rank: FakeRank) -> None:
    rank.start(endpoints.together)
    assert rank.event("debug.stop_others") == {"actor": "debugee", "thread": "", "text": ""}
    rank.stopped()
    rank.ask("!import sys; sys.breakpointhook(all=True)")  # passed over, as the rank is at a prompt
    assert rank.ask("p 1") == "1\n"
    rank.end()


@pytest.mark.parametrize(("variable", "value"), [("MESHRT_DEBUG", "0"), ("PYTHONBREAKPOINT", "0")])
def test_the_others_do_not_stop_where_breakpoints_do_nothing(
    variable: str, value: str, rank: FakeRank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    rank.start(endpoints.together)
    rank.join()
    assert rank.result == 1 and rank.services.events.empty()


def test_stepping(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert rank.step("n")["place"][1] == line_of("after")
    stop = rank.step("s")
    assert "--Call--" in stop["text"]
    assert stop["place"][2] == "double"
    assert rank.step("n")["place"][1] == line_of("double")
    assert rank.ask("p x") == "5\n"
    stop = rank.step("r")
    assert stop["reason"] == "return"
    assert "->10" in stop["text"]
    assert rank.step("n")["place"][1] == line_of("return")
    assert rank.step("n")["reason"] == "return"
    rank.end("n", how="step")  # stepping out of the endpoint resumes the rank
    assert rank.result == 10
    assert rank.traced_after is None


def test_stop_at_the_last_statement(rank: FakeRank) -> None:
    rank.start(endpoints.last_statement)
    assert rank.stopped()["place"][1] == line_of("last")
    rank.end()


def test_loop_and_breakpoints(rank: FakeRank) -> None:
    rank.start(endpoints.loop)
    rank.stopped()
    assert rank.ask("p i, total") == "(2, 1)\n"
    assert rank.ask(f"b {line_of('total')}, i == 3").startswith("Breakpoint 1 at")
    stop = rank.step("c")
    assert stop["place"][1] == line_of("total")
    assert stop["reason"] == "breakpoint"
    assert rank.ask("clear").startswith("Deleted breakpoint 1")
    assert rank.ask("clear") == "There are no breakpoints\n"
    rank.end()
    assert rank.result == 6


def test_breakpoint_numbers_start_again(rank: FakeRank) -> None:
    for _ in range(2):
        rank.start(endpoints.loop)
        rank.stopped()
        assert rank.ask(f"b {line_of('double')}").startswith("Breakpoint 1 at")
        rank.end()
        assert rank.traced_after is None


def test_commands_of_a_breakpoint(rank: FakeRank) -> None:
    rank.start(endpoints.loop)
    rank.stopped()
    rank.ask(f"b {line_of('total')}")
    assert rank.send("commands 1")
    assert rank.stopped()["prompt"] == "(com) "
    for line in ("silent", "p 'i is', i"):
        assert rank.send(line)
        assert rank.stopped()["prompt"] == "(com) "
    assert rank.send("end")
    assert rank.stopped()["prompt"] == "(Pdb) "
    assert rank.step("c")["text"] == "('i is', 2)\n"
    assert rank.step("c")["text"] == "('i is', 3)\n"
    rank.end()


def test_assignment_reaches_every_frame(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    rank.ask("!x = 20")
    assert rank.ask("p x") == "20\n"
    rank.step("n")
    rank.step("s")
    rank.ask("u")
    rank.ask("!y = 1")
    rank.ask("!value = 99")
    assert rank.ask("p value") == "99\n"
    rank.ask("d")
    rank.end()
    assert rank.result == 40


def test_every_assignment_of_many_counts(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    rank.step("n")
    rank.step("s")
    rank.step("n")
    rank.ask("z = 3")
    rank.ask("!x = 50")
    rank.ask("!x = 100")
    assert rank.ask("p (x := x + 1)") == "101\n"
    rank.ask("u")
    rank.step("r")
    rank.end()
    assert rank.result == 202


def test_jump(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    rank.ask("!y = 'jumped'")
    assert rank.step(f"j {line_of('return')}")["place"][1] == line_of("return")
    rank.ask("!y = 'again'")
    assert f"({line_of('after')})" in rank.ask(f"j {line_of('after')}")
    rank.ask(f"j {line_of('return')}")
    rank.end()
    assert rank.result == "again"


def test_streams_are_the_sessions(rank: FakeRank, capsys: pytest.CaptureFixture[str]) -> None:
    rank.start(endpoints.reads)
    rank.stopped()
    assert rank.ask("p print('hello')") == "hello\nNone\n"
    assert rank.ask("print('there')") == "there\n"
    rank.ask("from tests.unit.debug import endpoints")
    assert rank.send("name = endpoints.asks()")
    stop = rank.stopped()
    assert stop["prompt"] == "your name? "
    assert rank.ask("ada") == ""
    assert rank.ask("p name") == "'ada'\n"
    rank.end()
    assert capsys.readouterr().out == ""
    assert sys.stdout is not console_module.standard_out


def test_interact(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert rank.send("interact")
    stop = rank.stopped()
    assert stop["prompt"] == ">>> "
    assert "*interactive*" in stop["text"]
    assert rank.ask("x + 1") == "6\n"
    assert rank.send("for i in range(2):")
    assert rank.stopped()["prompt"] == "... "
    rank.ask("    print(i)")
    assert rank.ask("") == "0\n1\n"
    assert "ZeroDivisionError" in rank.ask("1 / 0")
    assert rank.ask("exit()") == ""
    assert rank.ask("p x") == "5\n"
    assert rank.send("interact")
    rank.stopped()
    assert rank.send(None)
    assert rank.stopped()["prompt"] == "(Pdb) "
    rank.end()


def test_debug_command_is_recursive(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert rank.send("debug double(7)")
    stop = rank.stopped()
    assert stop["prompt"] == "((Pdb)) "
    assert "ENTERING" in stop["text"]
    assert rank.send("s")
    assert rank.stopped()["place"][2] == "double"
    assert rank.ask("p x") == "7\n"
    assert rank.send("c")
    stop = rank.stopped()
    assert stop["prompt"] == "(Pdb) "
    assert "LEAVING" in stop["text"]
    assert rank.step("n")["place"][1] == line_of("after")
    rank.end()
    assert rank.result == 10


def test_breakpoint_while_a_command_runs_is_passed_over(rank: FakeRank) -> None:
    rank.start(endpoints.calls_nested)
    rank.stopped()
    answer = rank.ask("p nested_stop()")
    assert "ignored" in answer
    assert answer.endswith("5\n")
    assert rank.step("c")["place"][1] == line_of("inner")
    rank.end()
    assert rank.result == 6


def test_breakpoint_in_the_debug_command(rank: FakeRank) -> None:
    rank.start(endpoints.calls_nested)
    rank.stopped()
    assert rank.send("debug nested_stop()")
    rank.stopped()
    assert rank.send("c")
    stop = rank.stopped()
    assert stop["place"][1] == line_of("inner")
    assert stop["prompt"] == "((Pdb)) "
    assert rank.send("c")
    assert rank.stopped()["prompt"] == "(Pdb) "
    rank.end("q", how="quit")
    assert isinstance(rank.error, bdb.BdbQuit)


def test_quit_aborts_the_endpoint_once(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    rank.end("q", how="quit")
    assert isinstance(rank.error, bdb.BdbQuit)
    assert "a person aborted" in str(rank.error)
    assert rank.services.holds == 0


def test_quit_after_a_step(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    rank.step("n")
    rank.step("s")
    rank.end("q", how="quit")
    assert isinstance(rank.error, bdb.BdbQuit)
    assert "a person aborted" in str(rank.error)


@pytest.mark.parametrize("leave", ["c", "q"])
def test_post_mortem_after_a_stop(rank: FakeRank, leave: str) -> None:
    rank.start(endpoints.fails, "pea")
    rank.stopped()
    stop = rank.step("c")
    assert stop["reason"] == "post-mortem"
    assert stop["place"][1] == line_of("raise")
    assert "ValueError: bad pea" in stop["text"]
    assert rank.ask("p secret") == "'pea'\n"
    assert "fails()" in rank.ask("u")
    assert rank.ask("w").count("\n-> ") == 2  # two user frames, none of the runtime's
    rank.end(leave)
    assert isinstance(rank.error, ValueError)


class Disguised(Exception):
    """Its own answers are not to be asked for."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return bdb.BdbQuit


def raises_in_a_ring() -> None:
    breakpoint()
    error = ValueError("outer")
    error.__cause__ = Disguised("inner")
    error.__cause__.__cause__ = error
    raise error


def test_post_mortem_of_an_exception_that_says_what_it_is_not(rank: FakeRank) -> None:
    rank.start(raises_in_a_ring)
    rank.stopped()
    assert rank.step("c")["reason"] == "post-mortem"
    rank.end("c")


class Asked(BaseException):
    """Notes that it was asked for its class."""

    asked = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        Asked.asked = True
        return ValueError


def raises_asked() -> None:
    breakpoint()
    raise Asked


def test_an_exception_is_not_asked_what_it_is(rank: FakeRank) -> None:
    rank.start(raises_asked)
    rank.stopped()
    rank.end("c")
    assert not Asked.asked


def test_exception_while_stepping(rank: FakeRank) -> None:
    rank.start(endpoints.fails, "pea")
    rank.stopped()
    rank.step("n")
    stop = rank.step("n")
    assert stop["reason"] == "exception"
    assert stop["text"].startswith("ValueError: bad pea")
    rank.step("c")
    rank.end()


def test_where_shows_only_the_users_frames(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    where = rank.ask("w")
    assert where.count("-> ") == 1
    assert "meshrt" not in where
    assert "threading.py" not in where
    rank.end()


def test_async_stepping_over_a_wait(rank: FakeRank) -> None:
    rank.start(endpoints.waits)
    rank.stopped()
    assert rank.step("n")["place"][1] == line_of("await")
    assert rank.step("n")["place"][1] == line_of("awaited")
    rank.end()
    assert rank.result == 4
    assert rank.traced_after is None


def test_async_stepping_into_a_coroutine(rank: FakeRank) -> None:
    rank.start(endpoints.waits)
    rank.stopped()
    rank.step("n")
    assert rank.step("s")["place"][2] == "inner_wait"
    assert rank.step("s")["place"][1] == line_of("wait")
    assert rank.step("s")["place"][1] == line_of("woken")
    stop = rank.step("r")
    assert stop["reason"] == "return"
    assert stop["place"][1] == line_of("inner_return")
    assert rank.step("n")["place"][1] == line_of("awaited")
    rank.end()


def test_async_with_other_tasks(rank: FakeRank) -> None:
    rank.start(endpoints.with_background)
    rank.stopped()
    assert rank.step("n")["place"][1] == line_of("background_wait")
    assert rank.step("n")["place"][1] == line_of("background_after")
    rank.end()
    assert rank.result > 1


def test_two_threads_of_one_rank(rank: FakeRank) -> None:
    rank.start(endpoints.in_thread)
    stops = {stop["thread"]: stop for stop in (rank.stopped(), rank.stopped())}
    assert set(stops) == {"", "Worker"}
    assert stops["Worker"]["actor"] == "debugee"
    assert stops["Worker"]["place"][1] == line_of("thread")
    assert stops[""]["place"][1] == line_of("main")
    assert rank.ask("p value", thread="Worker") == "7\n"
    assert rank.ask("p len(results)") == "0\n"
    assert rank.send("c", thread="Worker")
    assert rank.event("debug.resumed")["thread"] == "Worker"
    assert rank.event("debug.ended")["thread"] == "Worker"
    rank.end()
    assert rank.result == [7]


@pytest.mark.parametrize(("leave", "how"), [("c", "continue"), ("q", "quit")])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_ends_its_session_when_it_goes_on(rank: FakeRank, leave: str, how: str) -> None:
    rank.start(endpoints.in_thread)
    assert {rank.stopped()["thread"], rank.stopped()["thread"]} == {"", "Worker"}
    rank.step("n", thread="Worker")
    assert rank.send(leave, thread="Worker")
    assert rank.event("debug.resumed")["how"] == how
    assert rank.event("debug.ended")["thread"] == "Worker"
    rank.end()


def test_two_actors_of_one_rank(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4, actor="one")
    assert rank.stopped()["actor"] == "one"
    rank.start(endpoints.loop, actor="two")
    assert rank.stopped()["actor"] == "two"
    assert rank.services.holds == 2
    assert rank.ask("p x", actor="one") == "5\n"
    assert rank.ask("p i", actor="two") == "2\n"


def test_resumed_rank_runs_at_full_speed(rank: FakeRank) -> None:
    def measure() -> float:
        start = time.process_time()
        total = 0
        for i in range(300_000):
            total += i
        return time.process_time() - start

    bare = min(measure() for _ in range(3))
    rank.start(endpoints.hot, 300_000)
    rank.stopped()
    rank.step("n")
    start = time.process_time()
    rank.end()
    assert time.process_time() - start < 5 * bare + 0.1


def test_closing_releases_a_stopped_thread(rank: FakeRank) -> None:
    rank.start(endpoints.swallowing)
    rank.stopped()
    rank.debugger.proc_closing()
    rank.join()
    assert isinstance(rank.error, bdb.BdbQuit)
    assert "the mesh was stopped" in str(rank.error)
    assert rank.services.holds == 0


def test_closing_inside_a_nested_prompt(rank: FakeRank) -> None:
    rank.start(endpoints.reads)
    rank.stopped()
    rank.send("name = input('? ')")
    rank.stopped()
    rank.debugger.proc_closing()
    rank.join()
    assert isinstance(rank.error, bdb.BdbQuit)


def test_continue_from_any_prompt(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    for line in ("interact", "debug double(2)", "name = input('? ')"):
        rank.start(endpoints.simple, 4) if rank.result else None
        if rank.result:
            rank.stopped()
        rank.result = None
        assert rank.send(line)
        rank.stopped()
        assert rank.send("", resume=True)
        assert rank.event("debug.resumed")["how"] == "continue"
        rank.event("debug.ended")
        rank.join()
        assert rank.result == 10


def test_late_line_is_dropped(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    stop = rank.stopped()
    assert not rank.debugger.input(Input("debugee", "", stop["seq"] - 1, "q")).accepted
    assert rank.send("p 1")
    assert not rank.send("q")  # the same prompt, answered already
    assert rank.stopped()["text"] == "1\n"
    assert not rank.debugger.input(Input("nobody", "", 2, "q")).accepted
    rank.end()


def test_init_is_stopped(rank: FakeRank) -> None:
    rank.start(endpoints.makes_thing)
    assert rank.stopped()["place"][2] == "__init__"
    assert rank.ask("p self").startswith("***")
    rank.end()
    assert rank.result == 2


def test_long_output_is_bounded(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert len(rank.ask("p 'x' * 150_000")) > 150_000
    rank.send("p 'x' * 5_000_000")
    size = 0
    while True:
        event, body = rank.services.events.get(timeout=10)
        size += len(body["text"])
        if event == "debug.stopped":
            break
    assert 150_000 < size < 450_000
    rank._seqs["debugee", ""] = body["seq"]
    rank.end()


def test_source_that_exists_only_in_the_program(rank: FakeRank) -> None:
    text = "def typed(n):\n    m = n + 1\n    breakpoint()\n    return m\n"
    rank.services.sources["<typed-7>"] = text
    namespace: dict[str, object] = {}
    exec(compile(text, "<typed-7>", "exec"), namespace)
    rank.start(namespace["typed"], 1)  # type: ignore[arg-type]
    assert "-> breakpoint()" in rank.stopped()["text"]
    assert "m = n + 1" in rank.ask("ll")
    assert rank.ask("b <typed-7>:4").startswith("Breakpoint 1 at <typed-7>:4")
    assert rank.step("c")["place"][1] == 4
    rank.end()


def test_breakpoint_by_base_name(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert rank.ask(f"b endpoints.py:{line_of('double')}").startswith("Breakpoint 1 at")
    assert rank.step("c")["place"][2] == "double"
    assert "End of file" in rank.ask("b endpoints.py:99999")
    rank.end()


def test_pythonbreakpoint_zero(rank: FakeRank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    rank.start(endpoints.simple, 4)
    rank.join()
    assert rank.result == 10


def test_restart_is_refused(rank: FakeRank) -> None:
    rank.start(endpoints.simple, 4)
    rank.stopped()
    assert "cannot be restarted" in rank.ask("run")
    rank.end()


@pytest.mark.parametrize("command", ["p", "pp", "clear", "interact", "jump", "next", "s", "quit", "debug", "until"])
def test_help_of_commands(rank: FakeRank, command: str) -> None:
    rank.start(endpoints.last_statement)
    rank.stopped()
    text = rank.ask(f"help {command}")
    assert text.strip().removeprefix("Usage: ").startswith(command[0])
    assert "missing" not in text
    rank.end()
