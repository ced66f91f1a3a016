"""Every command of pdb, on one rank through attach and on several through cast, ends in what it would in pdb."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from meshrt import ActorMesh, proc_mesh
from tests.debug.actors import Debugee, line_of
from tests.debug.harness import Person, person

pytestmark = pytest.mark.one_program

WAIT = 20

#: What is typed, what is in the answer, and the prompt that follows ("": pdb's own).
LINES: tuple[tuple[str, str, str], ...] = (
    ("value = 11", "", ""),
    ("!value += 1", "", ""),
    ("!(value)", "12\n", ""),
    ("p value", "12\n", ""),
    ("pp {'rank': value}", "{'rank': 12}\n", ""),
    ("whatis value", "<class 'int'>\n", ""),
    ("a", "value = 12\n", ""),
    ("display value", "display value: 12\n", ""),
    ("undisplay value", "", ""),
    ("u", "Oldest frame", ""),
    ("source double", "def double", ""),
    ("print('x' * 200_000)", "x" * 1000, ""),
    ("for i in range(3): print(i)", "0\n1\n2\n", ""),
    ("b double", "Breakpoint 1 at", ""),
    ("condition 1 value > 5", "New condition set", ""),
    ("commands 1", "", "(com)"),
    ("p 'in double', value", "", "(com)"),
    ("end", "", ""),
    ("interact", "*interactive*", ">>>"),
    ("value * 2", "24\n", ">>>"),
    ("exit()", "", ""),
    ("debug double(1)", "ENTERING RECURSIVE DEBUGGER", "((Pdb))"),
    ("c", "LEAVING RECURSIVE DEBUGGER", ""),
    (f"until {line_of('after')}", f"actors.py({line_of('after')})work()", ""),
    ("clear 1", "Deleted breakpoint 1", ""),
    ("n", f"actors.py({line_of('return')})work()", ""),
    (f"jump {line_of('after')}", f"actors.py({line_of('after')})work()", ""),
    ("s", "--Call--", ""),
    ("r", "--Return--", ""),
    ("nonsense", "*** NameError", ""),
    ("1 +", "*** SyntaxError", ""),
)


@pytest.fixture
def me() -> Iterator[Person]:
    mesh: ActorMesh[Debugee] = proc_mesh(gpus=2).spawn("debugee", Debugee).get(WAIT)
    result = mesh.work.call()
    with person() as someone:
        someone.wait("debugee")
        yield someone
        someone("continue")
    assert result.get(WAIT).values() == [24, 25]


def test_through_attach(me: Person) -> None:
    me("attach debugee 1")
    for line, text, prompt in LINES:
        assert text in me(line), line
        assert me.prompt.startswith(prompt or "(debugee 1 "), line
    me("detach")
    me("attach debugee 0")
    me("value = 12")
    me("detach")


def test_through_cast(me: Person) -> None:
    for line, text, prompt in LINES:
        shown = me(f"cast debugee ranks(:) {line}")
        assert shown.startswith("[0-1]"), line
        assert text in shown, line
        assert shown.rstrip().endswith(prompt), line


def test_of_a_long_value_the_beginning_is_shown(me: Person) -> None:
    me("attach debugee 1")
    me("many = {number: 'x' * 100 for number in range(2_000)}")
    for line, beginning, what in (("p many", "{0: ", "many"), ("pp many", "{0: ", "many"), ("many", "{0: ", "...")):
        shown = me(line)
        last = shown.splitlines()[-1]
        assert shown.startswith(beginning) and len(shown) < 6000, line
        assert re.fullmatch(rf"\.\.\. \d+ more (characters|lines) \(print\({re.escape(what)}\) shows all\)", last), line
    assert len(me("print(many)")) > 100_000
    assert me("p len(many)") == "2000\n"
    me("value = 12")
    me("detach")
    me("cast debugee ranks(0) value = 12")


def test_statements_of_several_lines(me: Person) -> None:
    me("attach debugee 1")
    assert me("for i in range(2):") == ""
    assert me.prompt == "...   "
    me("    if i:")
    me("        value = 10 + i")
    me("    print(i, value)")
    assert me("") == "0 10\n1 11\n"
    assert me.prompt == "(debugee 1 gpus=1) "
    assert me("text = '''one") == ""
    me("two'''")
    assert me("p text") == "'one\\ntwo'\n"
    me("def twice(n):")
    assert "SyntaxError" in me("    return n *") or "IndentationError" in me.terminal.shown
    assert me.prompt == "(debugee 1 gpus=1) "
    me("value = 12")
    me("detach")
    me("cast debugee ranks(0) value = 12")
