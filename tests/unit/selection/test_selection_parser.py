"""The parser: what is accepted, what trees it gives, and what it says about the rest. Scanner and cursor with it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from meshrt.errors import SelectionError
from meshrt.selection import STATE_WORDS, Shape, parse, parse_prefix, resolve
from meshrt.selection.grammar.ast import All, And, Dim, Group, Index, Node, Not, Or, Place, Range, RankSet, State
from meshrt.selection.grammar.cursor import MAX_DEPTH, MAX_LENGTH

__all__: list[str] = []


def ranks(*numbers: int) -> RankSet:
    return RankSet(tuple(Index(number) for number in numbers))


def dim(name: str, *numbers: int) -> Dim:
    return Dim(name, tuple(Index(number) for number in numbers))


TREES: list[tuple[str, Node]] = [
    ("ranks(3)", ranks(3)),
    ("ranks(1,3,5)", ranks(1, 3, 5)),
    ("ranks(1:10:2)", RankSet((Range(1, 10, 2),))),
    ("ranks(:)", RankSet((Range(),))),
    ("ranks(*)", RankSet((Range(),))),
    ("ranks(::2)", RankSet((Range(None, None, 2),))),
    ("ranks(1:2:)", RankSet((Range(1, 2),))),
    ("ranks(-3:-1)", RankSet((Range(-3, -1),))),
    (
        "ranks(pp=2, dp=(1,3), tp=2:8)",
        And((dim("pp", 2), dim("dp", 1, 3), Dim("tp", (Range(2, 8),)))),
    ),
    ("ranks(0:4, 9, 12:)", RankSet((Range(0, 4), Index(9), Range(12)))),
    ("ranks(dp=(0,2:4))", Dim("dp", (Index(0), Range(2, 4)))),
    ("ranks(-1)", ranks(-1)),
    ("ranks(all)", All()),
    ("ranks(!hosts=2)", Not(dim("hosts", 2))),
    ("ranks(hosts=0 | gpus=3)", Or((dim("hosts", 0), dim("gpus", 3)))),
    ("ranks(stopped & hosts=1)", And((State("stopped"), dim("hosts", 1)))),
    ("ranks(post-mortem | not-answering)", Or((State("post-mortem"), State("not-answering")))),
    ("ranks(at train.py:41)", Place("train.py", 41)),
    ("ranks(in dp)", Group("dp")),
    ("in in & !in all", And((Group("in"), Not(Group("all"))))),
    ("in=2", dim("in", 2)),
    ("at /a-b/C:x!.py:7 & 1", And((Place("/a-b/C:x!.py", 7), ranks(1)))),
    ('at "my ""odd"", (file).py":3|all', Or((Place('my "odd", (file).py', 3), All()))),
    ("hosts=2:, gpus=1:", And((Dim("hosts", (Range(2),)), Dim("gpus", (Range(1),))))),
    ("  ranks ( hosts\n=\t1 ) ", dim("hosts", 1)),
    ("hosts=(1)", dim("hosts", 1)),
    ("hosts=*", Dim("hosts", (Range(),))),
    ("a=1 & b=2 | c=3 & d=4", Or((And((dim("a", 1), dim("b", 2))), And((dim("c", 3), dim("d", 4)))))),
    ("a=1 & (b=2 | c=3)", And((dim("a", 1), Or((dim("b", 2), dim("c", 3)))))),
    ("!a=1 & b=2", And((Not(dim("a", 1)), dim("b", 2)))),
    ("!a=1, b=2", And((Not(dim("a", 1)), dim("b", 2)))),
    ("!(a=1, b=2)", Not(And((dim("a", 1), dim("b", 2))))),
    ("!!1", Not(Not(ranks(1)))),
    ("(1,3), 5", ranks(1, 3, 5)),
    ("(1,3) & stopped", And((ranks(1, 3), State("stopped")))),
    ("a=1, (b=2 & c=3)", And((dim("a", 1), dim("b", 2), dim("c", 3)))),
    ("ranks(1) | ranks(hosts=2)", Or((ranks(1), dim("hosts", 2)))),
    # words of the grammar as dimensions
    ("all=1, at=2, stopped=3, ranks=4", And((dim("all", 1), dim("at", 2), dim("stopped", 3), dim("ranks", 4)))),
    ("é=1", dim("é", 1)),
    ("0" * 17 + "1", ranks(1)),
]


@pytest.mark.parametrize(("text", "tree"), TREES)
def test_trees(text: str, tree: Node) -> None:
    selection = parse(text)
    assert selection.expr == tree
    assert selection.text == text


@pytest.mark.parametrize("word", STATE_WORDS)
def test_state_words(word: str) -> None:
    assert parse(word).expr == State(word)


# Each row: the text, where the caret points, a part of the problem, a part of what is expected.
ERRORS: list[tuple[str, str, str, str]] = [
    ("in", "", "'in' needs the name of a process group", "GROUP, for instance dp"),
    ("in 3", "3", "'in' needs the name of a process group", "GROUP"),
    ("", "", "ends too early", "a rank number"),
    ("ranks()", ")", "')' is not valid here", "a rank number"),
    ("ranks(1", "", "ends too early", ")"),
    ("ranks(1) n", "n", "'n' is not valid here", "the end"),
    ("1 3", "3", "'3' is not valid here", "a comma"),
    ("1,", "", "ends too early", "a rank number"),
    ("1 -7", "-7", "'-7' is not valid here", "a comma"),
    ("stopped-", "-", "'-' is not valid here", "a comma"),
    ("stopped-1", "-1", "'-1' is not valid here", "a comma"),
    ("1.5", ".", "'.' is not valid here", "a comma"),
    ("1)", ")", "')' is not valid here", "the end"),
    ("hosts=", "", "ends too early", "a list such as (1,3)"),
    ("hosts=a", "a", "'a' is not valid here", "a number"),
    ("hosts==1", "=", "one = is enough", "a number"),
    ("hosts!=1", "hosts", "!= is not part", "!hosts=..."),
    ("!=1", "=", "!= is not part", "!hosts=2"),
    ("hosts=(1 2)", "2", "is not valid here", "a comma"),
    ("hosts=()", ")", "is not valid here", "a number"),
    ("hosts=((1),2)", "(", "is not valid here", "a number"),
    ("hosts=(1", "", "ends too early", ")"),
    ("post-mortem=1", "post-mortem", "cannot be a dimension", "hosts"),
    ("hosts", "hosts", "unknown word 'hosts' in a selection", "hosts=... for a dimension"),
    ("stoped & 1", "stoped", "did you mean 'stopped'?", "stopped"),
    ("STOPPED", "STOPPED", "did you mean 'stopped'?", "stopped"),
    ("rank(3)", "rank", "did you mean 'ranks'?", "all"),
    ("ranks", "ranks", "needs parentheses", "ranks(...)"),
    ("a=1 and b=2", "and", "the word 'and'", "&"),
    ("a=1 or b=2", "or", "the word 'or'", "|"),
    ("not a=1", "not", "the word 'not'", "!"),
    ("a=1 && b=2", "&", "one & is enough", "a rank number"),
    ("a=1 || b=2", "|", "one | is enough", "a rank number"),
    ("0-7", "0-7", "written with a colon", "0:8"),
    ("1:4:0", "0", "step of a range must be at least 1", ""),
    ("4:1:-1", "-1", "step of a range must be at least 1", ""),
    ("a=1:4:0", "0", "step of a range must be at least 1", ""),
    ("9999999999999999999", "9999999999999999999", "too large", ""),
    ("at", "", "needs a place", "FILE:LINE"),
    ("at train.py", "train", "needs a place", "FILE:LINE"),
    ("at train.py:x", "train", "needs a place", "FILE:LINE"),
    ("at a.py:3x", "a", "needs a place", "FILE:LINE"),
    ("at :3", ":", "needs a place", "FILE:LINE"),
    ('at "":3', 'at "":3', "the name of a file", "FILE:LINE"),
    ('at "a:3', '"', "needs a place", "FILE:LINE"),
    ("at a.py:0", "at a.py:0", "lines count from 1", ""),
    ("a=1, 3", "3", "a comma joins rank numbers or", "&"),
    ("3, !a=1", "!a=1", "a comma joins rank numbers or", "|"),
    ("3, a=1", "a=1", "a comma joins rank numbers or", "|"),
    ("1, 3 & stopped", "3 & stopped", "a comma joins rank numbers or", "&"),
    ("1, 3 | 5", "|", "are mixed", "parentheses"),
    ("1 | 3, 5", ",", "are mixed", "parentheses"),
    ("a=1, b=2 | a=2", "|", "are mixed", "parentheses"),
    ("3\u00a0\u2460", "\u2460", "is not valid here", "a comma"),
]


@pytest.mark.parametrize(("text", "pointed", "problem", "expected"), ERRORS)
def test_errors(text: str, pointed: str, problem: str, expected: str) -> None:
    with pytest.raises(SelectionError) as caught:
        parse(text)
    error = caught.value
    assert problem in error.problem
    assert text[slice(*error.span)] == pointed
    assert any(expected in word for word in error.expected or [""])
    assert problem in str(error)


def test_expected_words_are_not_token_names() -> None:
    for text, *_ in ERRORS:
        with pytest.raises(SelectionError) as caught:
            parse(text)
        assert not {"number", "word", "other", "end"} & set(caught.value.expected)


def test_the_caret_fits_below_unprintable_text() -> None:
    with pytest.raises(SelectionError) as caught:
        parse("1,\t\x1b[31m")
    assert str(caught.value).splitlines()[1:3] == ["  1,  [31m", "     ^"]


def test_prefix_of_a_command() -> None:
    line = "cast trainer ranks(pp=2, dp=(1,3)) n ;; p 1 | 2, {'x': \"'"
    selection, end = parse_prefix(line, line.index("ranks"))
    assert selection.expr == And((dim("pp", 2), dim("dp", 1, 3)))
    assert line[end:] == " n ;; p 1 | 2, {'x': \"'"
    assert line[slice(*selection.expr.span)] == "pp=2, dp=(1,3)"
    assert parse_prefix("  ranks(1)")[1] == 10


@pytest.mark.parametrize("rest", ["", "=1", " | ranks(2)", "x" * 2 * MAX_LENGTH, "\x00", '"'])
def test_prefix_does_not_look_behind_its_parenthesis(rest: str) -> None:
    selection, end = parse_prefix("ranks(1)" + rest)
    assert selection.expr == ranks(1)
    assert end == 8


@pytest.mark.parametrize(("text", "pointed"), [("cast t n", "n"), ("cast t ", ""), ("cast t ranks n", "ranks")])
def test_prefix_is_missing(text: str, pointed: str) -> None:
    with pytest.raises(SelectionError, match=r"a selection of ranks is missing(.|\n)*ranks\(0:4\)") as caught:
        parse_prefix(text, 7)
    assert text[slice(*caught.value.span)] == pointed


def test_errors_of_a_prefix_point_into_the_command() -> None:
    with pytest.raises(SelectionError) as caught:
        parse_prefix("cast t ranks(hosts==1) n", 7)
    assert caught.value.span == (19, 20)
    assert str(caught.value).splitlines()[1:3] == ["  cast t ranks(hosts==1) n", " " * 21 + "^"]


@pytest.mark.parametrize(
    ("opening", "closing", "levels"), [("(", ")", 1), ("!", "", 1), ("ranks(", ")", 1), ("!(", ")", 2)]
)
def test_depth_is_limited(opening: str, closing: str, levels: int) -> None:
    most = MAX_DEPTH // levels
    parse(opening * most + "1" + closing * most)
    for times in (most + 1, 1500):
        with pytest.raises(SelectionError, match=f"nested too deep: more than {MAX_DEPTH} levels"):
            parse(opening * times + "1" + closing * times)


def test_terms_side_by_side_are_not_deep() -> None:
    parse("|".join(["!(1)"] * 1000))


def test_length_is_limited() -> None:
    assert parse("1" + " " * (MAX_LENGTH - 1)).expr == ranks(1)
    widest = ",".join("1" * (MAX_LENGTH // 2))
    assert len(widest) == MAX_LENGTH - 1
    assert isinstance(parse(widest).expr, RankSet)
    for text in (
        "1" + " " * MAX_LENGTH,
        " " * (MAX_LENGTH - 1) + "11",
        widest + ",11",
        "x" * 10**6,
        "1" * 10**6,
        "at " + "x" * 10**6 + ":3",
    ):
        with pytest.raises(SelectionError, match=f"longer than {MAX_LENGTH} characters"):
            parse(text)


WORDS = ("ranks", "hosts", "gpus", "all", "stopped", "at", "-2", "a.py:3", "post-mortem", "post-")
FRAGMENTS = st.sampled_from((*WORDS, *"(),:=|&!*-19 é", '"', "\x00", "\ud800", "\u0663"))


@example("at\ud800a.py:3")
@given(st.text() | st.lists(FRAGMENTS, max_size=12).map("".join) | st.text('ranks(0123456789:,=|&!*-) hostgpu.at"'))
def test_any_text_gives_a_selection_or_a_selection_error(text: str) -> None:
    error = None
    try:
        assert resolve(parse(text), Shape.from_extent({"hosts": 2, "gpus": 4}))
    except SelectionError as raised:
        error = raised
    if error:
        assert 0 <= error.span[0] <= error.span[1] <= len(text)
        str(error).encode()
    try:
        _, end = parse_prefix(text)
    except SelectionError:
        return
    parse(text[:end])
