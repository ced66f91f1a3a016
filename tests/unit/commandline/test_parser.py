"""A line of a prompt, or the words of a shell, becomes the arguments of a command: the same ones."""

from __future__ import annotations

import argparse
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.commandline.command import Argument, Command, Kind, Offer, Option, ranks
from meshrt.commandline.line import Line, behind, head, is_expression, is_python
from meshrt.commandline.numbers import number
from meshrt.commandline.parser import arguments_of
from meshrt.commandline.table import Table
from meshrt.errors import SelectionError, UsageError

SHOW: Command[Any] = Command(
    "show",
    "show it",
    arguments=(Argument("kind", choices=("big", "small"), skips=True), Argument("actor", Kind.ACTOR), ranks()),
    options=(Option("-n, --number", "so many", metavar="N", convert=number("rows")), Option("--wide", "all")),
)
EVALUATE: Command[Any] = Command(
    "evaluate",
    "evaluate it",
    arguments=(
        Argument("actor", Kind.ACTOR, required=True),
        ranks(),
        Argument("expression", Kind.EXPRESSION, required=True),
    ),
    options=(Option("-v", "more", "verbose"), Option("--diff", "compare", metavar="RANK")),
)
HALT: Command[Any] = Command(
    "halt",
    "halt there",
    arguments=(
        Argument("actor", Kind.ACTOR),
        Argument("place", Kind.PLACE, required=True),
        Argument("condition", Kind.CONDITION),
        ranks(),
    ),
)
START: Command[Any] = Command("start", "start it", arguments=(Argument("words", Kind.WORDS, required=True),))
AROUND: Command[Any] = Command(
    "around",
    "start it in a way",
    arguments=(Argument("words", Kind.WORDS, required=True),),
    options=(Option("--count", "so often", metavar="N", convert=int, default=1), Option("-q, --quiet", "say nothing")),
    main="nowhere:around",
)
TABLE: Table[Any] = Table((SHOW, EVALUATE, HALT, START, AROUND))


def typed(line: str) -> dict[str, Any]:
    arguments = TABLE.parse(line, Offer.PROMPT).arguments
    assert arguments is not None
    return dict(arguments)


def given_words(*words: str) -> dict[str, Any]:
    arguments = TABLE.parse_words(words, Offer.SHELL).arguments
    assert arguments is not None
    return dict(arguments)


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("show", ("", "", "", None, False)),
        ("show big", ("big", "", "", None, False)),
        ("show trainer", ("", "trainer", "", None, False)),
        ("show small trainer -n 3", ("small", "trainer", "", 3, False)),
        ("show -n3 --wide ranks(0, 2) trainer", ("", "trainer", "ranks(0, 2)", 3, True)),
        ("show --ranks 0:4 big", ("big", "", "ranks(0:4)", None, False)),
        ("show --ranks ranks(0, 4)", ("", "", "ranks(0, 4)", None, False)),
        ("show --ranks=ranks(0:4)", ("", "", "ranks(0:4)", None, False)),
    ],
)
def test_options_may_be_anywhere_among_words(line: str, arguments: tuple[Any, ...]) -> None:
    assert typed(line) == dict(zip(("kind", "actor", "ranks", "number", "wide"), arguments, strict=True))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("show bg trainer", "unexpected argument 'trainer'"),
        ("show trainer 3", "write ranks as ranks(3)"),
        ("show -n x", "'x' is not a valid number of rows"),
        ("show -n", "argument -n/--number: expected one argument"),
        ("show --wid3", "did you mean '--wide'?"),
        ("show big a.b", "'a.b' is not a valid name of an actor"),
        ("evaluate", "the actor is missing; usage: evaluate [-v] [--diff RANK] ACTOR [ranks(...)] EXPRESSION"),
        ("halt a.py:3 x", "a comma must precede the condition"),
        ("start", "the words is missing"),
        ("shwo", "did you mean 'show'?"),
    ],
)
def test_what_is_wrong_is_said(line: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        typed(line)
    assert problem in str(caught.value)


def test_a_mark_points_into_the_line() -> None:
    for line in ("show big ranks(0-3)", "evaluate trainer ranks(0-3) x", "halt a.py:3, x > 1 ranks(0-3)"):
        if line.startswith("halt"):
            assert typed(line)["condition"] == "x > 1 ranks(0-3)"  # it may be a part of the condition
            continue
        with pytest.raises(SelectionError) as caught:
            typed(line)
        assert caught.value.text == line
        start, end = caught.value.span
        assert line[start:end] == "0-3"


def test_a_text_at_the_end_of_the_line_is_taken_as_it_is() -> None:
    assert typed("evaluate -v trainer  f( 'a  b' ) -v")["expression"] == "f( 'a  b' ) -v"
    assert typed("evaluate ranks(0)x")["actor"] == ""
    assert typed("evaluate --diff 3 t --x")["expression"] == "--x"
    found = typed("halt trainer a.py:3, f(ranks (1)) > 2 ranks(hosts=1:)")
    assert found == {"actor": "trainer", "place": "a.py:3", "condition": "f(ranks (1)) > 2", "ranks": "ranks(hosts=1:)"}
    assert typed('halt "my file.py":3')["place"] == "my file.py:3"
    assert typed("start a.py --help -n 3")["words"] == ["a.py", "--help", "-n", "3"]


def test_long_options_may_be_behind_the_actor() -> None:
    found = typed("evaluate trainer --ranks 0:2 --diff 3 self.x - 1")
    assert (found["ranks"], found["diff"], found["expression"]) == ("ranks(0:2)", "3", "self.x - 1")
    # What may be a value is one.
    assert typed("evaluate trainer -v")["expression"] == "-v"
    assert typed("evaluate trainer --x")["expression"] == "--x"


def test_words_of_a_shell_may_have_blanks() -> None:
    assert given_words("evaluate", "trainer", "a + b")["expression"] == "a + b"
    assert given_words("show", "ranks(hosts=1, gpus=0)", "trainer")["ranks"] == "ranks(hosts=1, gpus=0)"
    assert given_words("show", "--ranks", "ranks(0) & stopped")["ranks"] == "ranks(0) & stopped"
    assert given_words("start", "my script.py", "", "a b")["words"] == ["my script.py", "", "a b"]


def test_help_is_asked_for_among_the_options() -> None:
    for line in ("show --help", "evaluate -h", "evaluate -v --help trainer", "start --help"):
        assert TABLE.parse(line, Offer.PROMPT).arguments is None
    assert typed("evaluate trainer -h")["expression"] == "-h"


_WORDS = st.sampled_from(
    ["trainer", "big", "small", "ranks(0)", "ranks(0:4)", "--ranks", "0:4", "-n", "3", "--wide", "x", "a.py:3", ","]
)


@given(st.sampled_from(["show", "evaluate", "halt"]), st.lists(_WORDS, max_size=6))
def test_a_line_means_the_same_in_a_shell(command: str, words: list[str]) -> None:
    line = [command, *words]

    def outcome(parse: Any, *arguments: Any) -> Any:
        try:
            found = parse(*arguments).arguments
            return found and {name: value for name, value in found.items() if name not in ("json", "program", "via")}
        except UsageError as error:
            return str(error).replace("-p, --program, --via, --json, ", "")

    typed_there = outcome(TABLE.parse, " ".join(line), Offer.PROMPT)
    assert typed_there == outcome(TABLE.parse_words, line, Offer.SHELL)


@given(st.sampled_from([SHOW, EVALUATE, HALT, START]), st.text(max_size=60))
def test_any_text_is_understood_or_refused(command: Command[Any], text: str) -> None:
    try:
        found = arguments_of(command, Line.typed(text), Offer.PROMPT)
    except UsageError as error:
        assert str(error)  # noqa: PT017 - either way is right
    else:
        assert found is None or set(found) >= {each.name for each in command.arguments}


@given(st.lists(st.text(max_size=8), max_size=5))
def test_words_of_a_shell_are_read_one_by_one(words: list[str]) -> None:
    line = Line.given(words)
    assert line.take_all() == words and not line.more and line.left == ""


def test_the_head_of_a_line() -> None:
    assert head("  where  -v x ") == ("where", "-v x")
    assert head("") == ("", "")
    assert behind("mesh where", "mesh") == "where"
    assert [behind(line, "mesh") for line in ("mesh", "mesh in x", "meshes where", "mesh = 3")] == ["", "", "", ""]


def test_python_is_told_from_other_lines() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_python("x = 3") and is_python("for x in y:") and is_python("'\\d'") and is_python("f(")
        assert not is_python("where trainer") and not is_python("1 +* 2") and not is_python("\x00")
        assert is_expression("x if a else '\\d'") and not is_expression("x = 3") and not is_expression("(" * 5000)


def test_a_parser_is_made_once_for_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """argparse takes ten times as long to make a parser as to use it."""
    typed("show big")
    monkeypatch.setattr(argparse.ArgumentParser, "__init__", None)
    assert typed("show small")["kind"] == "small"
    with pytest.raises(UsageError, match="no option '--narrow'"):
        typed("show --narrow")
    assert typed("show --wide")["wide"] is True
    assert typed("show")["wide"] is False


def test_lines_of_several_threads_do_not_meet_in_a_parser() -> None:
    """argparse changes its parser while it parses."""
    lines = [f"show {'big' if n % 2 else 'small'} trainer -n {n}" for n in range(200)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(typed, lines))
    assert [(each["kind"], each["number"]) for each in found] == [("big" if n % 2 else "small", n) for n in range(200)]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("show --json", "--json is an option of the shell, not of this prompt; in a shell: meshrt show --json"),
        ("show --program=4711 trainer", "--program is an option of the shell"),
        ("show -p a.b", "-p is an option of the shell"),
        ("meshrt show big", "at this prompt commands are typed without meshrt: show big"),
        ("halt --foo", "no option '--foo'"),
        ("halt a.py:3 ranks(", "the text ends too early"),
        ("halt a.py:3 ranks(0) x", "unexpected argument 'x'"),
    ],
)
def test_what_is_typed_at_the_wrong_place_is_named(line: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        typed(line)
    assert problem in str(caught.value)


def test_an_actor_and_ranks_in_one_word_of_a_shell() -> None:
    with pytest.raises(UsageError, match=r"expected two words: solver 'ranks\(13\)'"):
        given_words("show", "solver ranks(13)")


@pytest.mark.parametrize(
    ("words", "count", "quiet", "rest"),
    [
        (["a.py", "--count", "3"], 1, False, ["a.py", "--count", "3"]),
        (["--count", "3", "-q", "a.py", "-q"], 3, True, ["a.py", "-q"]),
        (["--count=3", "-m", "module", "--help"], 3, False, ["-m", "module", "--help"]),
        (["-m", "module"], 1, False, ["-m", "module"]),
        (["--counter", "a.py"], 1, False, ["--counter", "a.py"]),
    ],
)
def test_options_in_front_of_words_are_those_of_the_command(
    words: list[str], count: int, quiet: bool, rest: list[str]
) -> None:
    assert given_words("around", *words) == {"count": count, "quiet": quiet, "words": rest}
    with pytest.raises(UsageError):
        given_words("around", "--count", "3")
