"""Commands, rendering, plain terminals: what needs neither ranks nor a broker."""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.commandline.command import Command, Offer
from meshrt.commandline.table import COMMANDS
from meshrt.debug.operations import BreakRow, JobReport
from meshrt.debug.prompt.answers import Answers
from meshrt.debug.prompt.lines import parse_line
from meshrt.debug.prompt.tables import left_behind, listing
from meshrt.debug.prompt.terminal import LineTerminal, Woken
from meshrt.debug.prompt.text import prompt_of
from meshrt.errors import MeshError
from meshrt.escapes import escaped
from meshrt.inspect.capping import cap
from meshrt.inspect.operations import RankRow
from meshrt.program.places import Place
from meshrt.program.targets import address
from meshrt.selection import Shape
from meshrt.show.text import since
from tests.support.folded import parse_folded

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("line", "command", "arguments"),
    [
        ("list", "list", {"state": "stopped", "actor": "", "ranks": "", "verbose": False, "wide": False}),
        (" l  -v ", "list", {"state": "stopped", "actor": "", "ranks": "", "verbose": True, "wide": False}),
        ("list dead", "list", {"state": "dead", "actor": "", "ranks": "", "verbose": False, "wide": False}),
        ("list debugee ranks(0:2)", "list",
         {"state": "all", "actor": "debugee", "ranks": "ranks(0:2)", "verbose": False, "wide": False}),
        ("list running debugee", "list",
         {"state": "running", "actor": "debugee", "ranks": "", "verbose": False, "wide": False}),
        ("a debugee 13", "attach", {"actor": "debugee", "rank": "13", "steal": False}),
        ("attach --steal my-actor@left/T-1 hosts=3, gpus=1", "attach",
         {"actor": "my-actor@left/T-1", "rank": "hosts=3, gpus=1", "steal": True}),
        ("cast debugee ranks(0:4) p x ;; n", "cast",
         {"actor": "debugee", "ranks": "ranks(0:4)", "line": "p x ;; n", "verbose": False, "diff": None}),
        ("cast -v --diff 3 debugee ranks(dp=(1,3), tp=2:8) p f(')')", "cast",
         {"actor": "debugee", "ranks": "ranks(dp=(1,3), tp=2:8)", "line": "p f(')')", "verbose": True, "diff": 3}),
        ("cast d ranks(0)n", "cast", {"actor": "d", "ranks": "ranks(0)", "line": "n", "verbose": False, "diff": None}),
        ("p debugee self.x", "p",
         {"actor": "debugee", "ranks": "", "expression": "self.x", "verbose": False, "diff": None}),
        ("pp debugee ranks(1) {1: 2}", "pp",
         {"actor": "debugee", "ranks": "ranks(1)", "expression": "{1: 2}", "verbose": False, "diff": None}),
        ("where", "where", {"actor": "", "ranks": "", "verbose": False}),
        ("bt -v debugee ranks(0)", "where", {"actor": "debugee", "ranks": "ranks(0)", "verbose": True}),
        ("where debugee --verbose", "where", {"actor": "debugee", "ranks": "", "verbose": True}),
        ("p debugee --verbose --diff 1 x", "p",
         {"actor": "debugee", "ranks": "", "expression": "x", "verbose": True, "diff": 1}),
        ("logs -n 3 debugee", "logs", {"actor": "debugee", "ranks": "", "lines": 3, "diff": None}),
        ("interrupt debugee ranks(3)", "interrupt", {"actor": "debugee", "ranks": "ranks(3)"}),
        ("break train.py:88", "break", {"place": "train.py:88", "condition": "", "actor": "", "ranks": ""}),
        ("b train.py:88, loss != loss", "break",
         {"place": "train.py:88", "condition": "loss != loss", "actor": "", "ranks": ""}),
        ("break train.py:88, f(ranks (1)) > 2 ranks(hosts=1:)", "break",
         {"place": "train.py:88", "condition": "f(ranks (1)) > 2", "actor": "", "ranks": "ranks(hosts=1:)"}),
        ("break trainer train.py:88 ranks(0)", "break",
         {"place": "train.py:88", "condition": "", "actor": "trainer", "ranks": "ranks(0)"}),
        ("tbreak trainer.step", "tbreak", {"place": "trainer.step", "condition": "", "actor": "", "ranks": ""}),
        ("clear 1, 2 3", "clear", {"ids": [1, 2, 3], "all": False}),
        ("clear", "clear", {"ids": [], "all": False}),
        ("cl all", "clear", {"ids": [], "all": True}),
        ("postmortem on trainer", "postmortem",
         {"mode": "on", "actor": "trainer", "list": False, "ranks": None, "report": False, "modes": False}),
        *(
            (f"p d {expression}", "p",
             {"actor": "d", "ranks": "", "expression": expression, "verbose": False, "diff": None})
            for expression in ("rank(x)[0]", "rank(0) in group", "rank(x) is None", "rank(0) if a else 1", "1 in xs",
                               "1 if a else 2", "3 (x)", "-v", "rank (0) ['a']")
        ),
        ("p ranks(hosts=1) self.x", "p",
         {"actor": "", "ranks": "ranks(hosts=1)", "expression": "self.x", "verbose": False, "diff": None}),
        ("cast ranks(0) n", "cast", {"actor": "", "ranks": "ranks(0)", "line": "n", "verbose": False, "diff": None}),
        ("wait debugee", "wait", {"actor": "debugee", "ranks": "", "seconds": 60.0}),
        ("wait debugee ranks(all) 2.5", "wait", {"actor": "debugee", "ranks": "ranks(all)", "seconds": 2.5}),
        ("c", "continue", {"actor": "", "ranks": ""}),
        ("c debugee ranks(0)", "continue", {"actor": "debugee", "ranks": "ranks(0)"}),
        ("help cast", "help", {"topic": "cast"}),
        ("q", "quit", {}),
    ],
)  # fmt: skip
def test_lines_that_are_understood(line: str, command: str, arguments: dict[str, object]) -> None:
    invocation = parse_line(line)
    assert invocation.arguments is not None
    assert (invocation.command.name, dict(invocation.arguments)) == (command, arguments)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("lits", "did you mean 'list'?"),
        ("LIST", "did you mean 'list'?"),
        ("n", "is a command of pdb"),
        ("!x = 3", "is a command of pdb"),
        ("c a b", "unexpected argument 'b'; usage: continue"),
        ("continue ranks(0)", "the actor is missing: continue ACTOR ranks(...)"),
        ("list -x", "no option '-x'; expected one of -v, --verbose, --wide, --ranks"),
        ("p debugee", "the expression is missing"),
        ("p --diff x debugee y", "not a valid number of a rank"),
        ("p debugee -v x", "options must directly follow the command"),
        ("p debugee ranks(0) --verbose x", "options must directly follow the command"),
        ("p debugee 3 self.x", "write ranks as ranks(3)"),
        ("p debugee rank(1) self.x", "did you mean ranks(1) self.x?"),
        ("p debugee rank(1) in", "did you mean ranks(1) in?"),
        ("interrupt debugee 1,3", "write ranks as ranks(1,3)"),
        ("interrupt debugee 0:4", "write ranks as ranks(0:4)"),
        ("interrupt debugee 0-3", "unexpected argument '0-3'; usage: interrupt"),
        ("interrupt debugee -", "unexpected argument '-'; usage: interrupt"),
        ("interrupt debugee 1,,2", "unexpected argument '1,,2'; usage: interrupt"),
        ("interrupt debugee ranks(1) 2", "unexpected argument '2'; usage: interrupt"),
        ("break", "the place is missing"),
        ("break a.py:3 x > 1", "a comma must precede the condition"),
        ("break a.py:3 ranks(0-7)", "colon"),
        ("clear x", "not a valid number of a breakpoint"),
        ("postmortem of", "did you mean 'off'?"),
        ("logs -n", "argument -n: expected one argument; usage: logs"),
        ("attach debugee", "the rank is missing; usage: attach"),
        ("attach a.b 1", "not a valid name of an actor"),
        ("cast", "usage: cast"),
        ("cast debugee", "selection of ranks is missing"),
        ("cast debugee 3 p x", "selection of ranks is missing"),
        ("cast debugee ranks(3)", "the command is missing"),
        ("cast debugee ranks(3", "expected"),
        ("cast debugee ranks(0-7) p x", "colon"),
        ("wait debugee soon", "not a valid number of seconds"),
        ("help nothing", "no command 'nothing'"),
    ],
)
def test_lines_that_are_not(line: str, problem: str) -> None:
    with pytest.raises(MeshError) as caught:
        COMMANDS.help((parse_line(line).arguments or {}).get("topic", ""), Offer.PROMPT)
    assert problem in str(caught.value)


#: What stands in lines, in any order: every parser comes to most of its branches with these.
WORDS = st.sampled_from(
    ["ranks(0)", "ranks(hosts=1, gpus=(0,2))", "ranks(", "ranks(0-3)", "ranks(stopped)", "worker", "w@left", "w/T-1",
     "-v", "-n", "--diff", "--steal", "-x", "stopped", "dead", "all", "on", "dump", "a.py:3", "w.step", ",", "x > 1",
     "3", "2.5", "60", "1,2", "list", '"my file.py":3', "hosts=1", "'", ")", "\x00", "é"]
)  # fmt: skip


def tails(command: Command[Any]) -> st.SearchStrategy[str]:
    """What may stand behind ``command``: its own options, an actor with ranks, and words, in any order; or anything."""
    options = [*re.findall(r"--?\w+", command.usage(Offer.PROMPT)), ""]
    words = st.lists(WORDS, max_size=4).map(" ".join)
    target = st.sampled_from(("", "", "worker ", "worker ranks(0) "))
    some = st.tuples(st.sampled_from(options), st.sampled_from((" ", " 3 ")), target, words).map("".join)
    return st.one_of(some, some, some, words, st.text(max_size=40), st.text("workranks(0:4,=)! -/@.", max_size=40))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.offered(Offer.PROMPT), ids=lambda command: command.name)
@given(data=st.data())
def test_any_line_is_understood_or_refused(command: Command[Any], data: st.DataObject) -> None:
    word = data.draw(st.sampled_from((command.name, *command.aliases)))
    line = f"{word} {data.draw(tails(command))}"
    try:
        invocation = parse_line(line)
    except MeshError as error:
        assert str(error)  # noqa: PT017 - either way is right
    else:
        assert invocation.command is command
        json.dumps({**(invocation.arguments or {}), "look": None})  # it can be sent


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused(line: str) -> None:
    if line.strip():
        try:
            parse_line(line)
        except MeshError as error:
            assert str(error)  # noqa: PT017 - either way is right


def test_the_documentation_lists_the_table() -> None:
    text = (ROOT / "docs" / "debugger.md").read_text(encoding="utf-8")
    for command in COMMANDS.offered(Offer.PROMPT):
        shown = command.usage(Offer.PROMPT).replace("|", "\\|")  # as a table wants it
        assert f"| `{shown}` |" in text, command.name
        assert command.summary in text, command.name
        assert COMMANDS.help(command.name, Offer.PROMPT)
        assert all(len(line) <= 120 for line in COMMANDS.help(command.name, Offer.PROMPT).splitlines())


def rows(count: int, **facts: Any) -> list[RankRow]:
    view = Shape.from_extent({"hosts": count // 4, "gpus": 4})
    given = {
        "actor": "debugee", "mesh": "m1", "view": view.to_wire(), "host": "node", "pid": 1, "endpoint": "to_debug",
        "module": "my_actors", "function": "to_debug", "file": "/x/my_actors.py", "line": 16, "state": "stopped",
        "note": "", "since": 0.0, "holder": 0, "breakpoint": 0, "breakpoint_error": "", **facts,
    }  # fmt: skip
    return [RankRow(rank=rank, coords=view.coordinates(rank), **given) for rank in range(count)]


def test_listing() -> None:
    assert listing(rows(4)[3:]) == (
        "+--------------+--------+-------------------------+------------+--------------------+------------+\n"
        "| Actor Name   |   Rank | Coords                  | Hostname   | Function           |   Line No. |\n"
        "+==============+========+=========================+============+====================+============+\n"
        "| debugee      |      3 | {'hosts': 0, 'gpus': 3} | node       | my_actors.to_debug |         16 |\n"
        "+--------------+--------+-------------------------+------------+--------------------+------------+"
    )
    assert listing([]) == "nothing is stopped"
    assert "stopped on an exception; `c` passes the exception to the caller: debugee 0-3" in listing(
        rows(4, state="post-mortem")
    )
    assert "running 'n': debugee 0-3" in listing(rows(4, note="running 'n'"))


def test_long_listings_fold() -> None:
    folded = listing(rows(64))
    assert folded.count("| debugee ") == 1
    assert "0-63" in folded
    assert "hosts=*, gpus=*" in folded
    assert listing(rows(64), fold=False).count("| debugee ") == 64
    assert listing(rows(32)).count("| debugee ") == 32


def test_what_a_script_leaves_is_its_own_breakpoints_and_all_stops() -> None:
    breaks = [BreakRow(number, f"a.py:{number}", "", False, "all", None, 0) for number in (1, 2)]
    assert left_behind(breaks, {2, 3}, []) == "left behind: breakpoint 2 at a.py:2 (clear 2)"
    assert left_behind([], {2}, rows(4)) == "left behind: stopped ranks: debugee 0-3 (continue)"
    assert left_behind(breaks, set(), []) == ""


def report(*answers: tuple[str, str, str], waiting: str = "", done: bool = True) -> JobReport:
    return JobReport.read(
        {
            "job": 1,
            "done": done,
            "waiting": {"debugee": list(parse_folded(waiting))} if waiting else {},
            "answers": [
                {"actor": "debugee", "kind": kind, "ranks": list(parse_folded(ranks)), "text": text}
                for kind, ranks, text in answers
            ],
        }
    )


def test_answers_are_grouped() -> None:
    answers = Answers()
    answers.add(report(("answered", "0-7", "3\n"), ("answered", "8", "7\n"), waiting="9-15", done=False))
    assert answers.pending() == "9/16 answered, waiting for 9-15"
    answers.add(report(("answered", "9-15", "3\n")))
    assert answers.text() == "[0-7,9-15] 3\n[8] 7"
    assert answers.done


def test_what_has_no_answer_is_said() -> None:
    answers = Answers()
    answers.add(
        report(("answered", "0", "> a(1)f()\n-> x\n"), ("answered", "1", ""), ("resumed", "2-3", ""),
               ("gone", "4", "was killed by SIGKILL"), ("missing", "5,7", ""), ("ended", "8", "--Return--\n"))
    )  # fmt: skip
    assert answers.text().splitlines() == [
        "[0]",
        "> a(1)f()",
        "-> x",
        "[1]",
        "2 ranks of debugee (2-3): resumed",
        "rank 4 of debugee: ended (was killed by SIGKILL)",
        "2 ranks of debugee (5,7): not stopped",
        "[8] --Return--",
        "rank 8 of debugee: endpoint finished",
    ]
    assert answers.sent == 6


@given(st.text())
def test_nothing_of_a_rank_drives_the_terminal(text: str) -> None:
    shown = escaped(text)
    assert all(character in "\n\t" or character.isprintable() or ord(character) > 159 for character in shown)
    assert escaped("\x1b[31m\ta\r\nb\rc\x9b") == "\\e[31m\ta\nb\\rc\\x9b"


def test_small_texts() -> None:
    assert prompt_of("debugee", 13, {"hosts": 3, "gpus": 1}) == "(debugee 13 hosts=3,gpus=1) "
    assert prompt_of("solo", 0, {}) == "(solo 0) "
    assert address("a", "t", "m") == "a@m/t"
    assert str(Place("/x/y/my_actors.py", 16, "to_debug")) == "my_actors.py:16 (to_debug)"
    assert Place("/x/y.py", 1, "f").module == "y"
    assert (since(0, 5), since(0, 600), since(0, 7200)) == ("5 s", "10 min", "2 h")
    assert cap("x" * 10, 10) == "x" * 10
    assert cap("x" * 100 + "y" * 100, 10) == "xxxxx\n... 190 characters left out ...\nyyyyy"


@pytest.fixture
def pipe() -> Iterator[tuple[LineTerminal, int, io.StringIO]]:
    reading, writing = os.pipe()
    out = io.StringIO()
    terminal = LineTerminal(reading, out)
    yield terminal, writing, out
    terminal.close()
    os.close(reading)
    os.close(writing)


def test_plain_lines(pipe: tuple[LineTerminal, int, io.StringIO]) -> None:
    terminal, writing, out = pipe
    os.write(writing, b"one\r\ntwo\nthr")
    assert [terminal.read("> "), terminal.read("> ")] == ["one", "two"]
    terminal.notice("said between lines")
    terminal.wake()
    with pytest.raises(Woken):
        terminal.read("> ")
    os.write(writing, b"ee\n")
    assert terminal.read("> ") == "three"
    assert out.getvalue() == "said between lines\n"


def test_a_plain_reader_is_woken(pipe: tuple[LineTerminal, int, io.StringIO]) -> None:
    terminal, _, _ = pipe
    timer = threading.Timer(0.02, terminal.wake)
    timer.start()
    with pytest.raises(Woken):
        terminal.read("> ")
    timer.join()


def test_the_last_line_needs_no_newline() -> None:
    reading, writing = os.pipe()
    terminal = LineTerminal(reading, io.StringIO())
    os.write(writing, b"quit")
    os.close(writing)
    assert terminal.read("") == "quit"
    with pytest.raises(EOFError):
        terminal.read("")
    terminal.close()
    os.close(reading)


def test_a_person_at_a_plain_terminal_sees_the_prompt() -> None:
    reading, writing = os.pipe()
    out = io.StringIO()
    terminal = LineTerminal(reading, out, person=True)
    os.write(writing, b"list\n")
    assert terminal.read("meshrt_dbg> ") == "list"
    assert out.getvalue() == "meshrt_dbg> "
    terminal.close()
    os.close(reading)
    os.close(writing)


def test_what_was_typed_ahead_is_forgotten() -> None:
    keyboard, ours = os.openpty()
    terminal = LineTerminal(ours, io.StringIO(), person=True)
    try:
        os.write(keyboard, b"one\ntwo\n")
        assert terminal.read("") == "one"
        assert terminal.forget_typed() and not terminal.forget_typed()
        os.write(keyboard, b"three\n")
        assert terminal.read("") == "three"
    finally:
        terminal.close()
        os.close(keyboard)
        os.close(ours)
