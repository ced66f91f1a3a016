"""The names of bdb and pdb that Python does not document: each does what the debugger needs it for, on this Python."""

from __future__ import annotations

import ast
import bdb
import inspect
import io
import pdb
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest

from meshrt.debug.rank import bdb_adapter, pdb_adapter
from meshrt.debug.rank.bdb_adapter import Name
from meshrt.debug.rank.prompt import COMMANDS
from tests.unit.debug.fakes import FakeRank

PACKAGE = Path(bdb_adapter.__file__).parents[2]
ADAPTERS = (Path(bdb_adapter.__file__), Path(pdb_adapter.__file__))
NAMES = (*bdb_adapter.NAMES, *pdb_adapter.NAMES)

#: What the documentation of bdb and cmd has, in Python 3.13.
_DOCUMENTED = """
canonic reset trace_dispatch dispatch_line dispatch_call dispatch_return dispatch_exception is_skipped_line
is_skipped_module stop_here break_here break_anywhere user_call user_line user_return user_exception do_clear set_step
set_next set_return set_until set_trace set_continue set_quit quitting set_break clear_break clear_bpbynumber
clear_all_file_breaks clear_all_breaks get_bpbynumber get_break get_breaks get_file_breaks get_all_breaks get_stack
format_stack_entry run runeval runctx runcall
deleteMe enable disable bpformat bpprint file line temporary cond funcname enabled bpbynumber bplist ignore hits number
cmdloop onecmd emptyline default completedefault columnize precmd postcmd preloop postloop prompt identchars lastcmd
intro doc_header misc_header undoc_header ruler use_rawinput cmdqueue
"""


def is_here(name: Name) -> bool:
    return name.since <= sys.version_info[:2] and (name.until is None or sys.version_info[:2] < name.until)


# ---- a program under pdb ---------------------------------------------------------------------------------------------


def double(n: int) -> int:
    m = 2 * n
    return m


FIRST, LAST = double.__code__.co_firstlineno + 1, double.__code__.co_firstlineno + 2


class Plain(pdb.Pdb):
    """pdb that reads its lines from a text, and notes the calls of one of its methods."""

    def __init__(self, lines: str = "") -> None:
        self.looks: list[dict[str, Any]] = []
        self.out = io.StringIO()
        super().__init__(stdin=io.StringIO(lines), stdout=self.out, nosigint=True, readrc=False)

    def do_look(self, arg: str) -> None:
        names = ("botframe", "currentbp", "curframe", "curframe_locals", "curindex", "stack")
        wanted = [name for name in names if sys.version_info < (3, 14) or name != "curframe_locals"]
        self.looks.append({name: getattr(self, name, None) for name in wanted})


@contextmanager
def noted(name: str) -> Iterator[list[tuple[Any, ...]]]:
    """Note the arguments of the calls of a method, which is called all the same."""
    calls: list[tuple[Any, ...]] = []
    before: Callable[..., Any] = getattr(pdb.Pdb, name)

    def call(self: pdb.Pdb, *args: Any, **kwargs: Any) -> Any:
        calls.append((self, *args))
        return before(self, *args, **kwargs)

    with mock.patch.object(Plain, name, call, create=True):
        yield calls


def typed(*lines: str) -> Plain:
    """Run a short program, stop at its first line, and type these lines there."""
    plain = Plain("".join(f"{line}\n" for line in (*lines, "c")))
    before = sys.gettrace()
    try:
        plain.runcall(double, 3)
    finally:
        sys.settrace(before)
        bdb.Breakpoint.clearBreakpoints()
    return plain


def calls_of(name: str, *lines: str) -> list[tuple[Any, ...]]:
    """Return the arguments of the calls of a method while these lines run."""
    with noted(name) as calls:
        typed(*lines)
    return [call[1:] for call in calls]


# ---- what each of them does ------------------------------------------------------------------------------------------

PROBES: dict[str, Callable[[], None]] = {}


def probe(function: Callable[[], None]) -> None:
    PROBES[function.__name__.removeprefix("name_")] = function


@probe
def name__load_breaks() -> None:
    with noted("_load_breaks") as calls:
        plain = Plain()
    assert calls == [(plain,)]


@probe
def name__prune_breaks() -> None:
    assert calls_of("_prune_breaks", f"b {LAST}", "clear 1") == [(__file__, LAST)]


@probe
def name__set_stopinfo() -> None:
    plain, here = Plain(), inspect.currentframe()
    assert here is not None
    bdb.Bdb._set_stopinfo(plain, here, here.f_back, -1)  # type: ignore[attr-defined]
    assert (plain.stopframe, plain.returnframe, plain.stoplineno) == (here, here.f_back, -1)
    assert not plain.stop_here(here)


@probe
def name_botframe() -> None:
    plain = Plain()
    plain.reset()
    assert plain.botframe is None
    (look,) = typed("look").looks
    assert look["botframe"].f_code is bdb.Bdb.runcall.__code__
    here = inspect.currentframe()
    plain.botframe = here
    assert here is not None and plain.get_stack(here, None)[0] == [(here, here.f_lineno)]


@probe
def name_breaks() -> None:
    plain = Plain()
    assert plain.breaks == {}
    plain.set_break(__file__, LAST)
    assert plain.breaks == {__file__: [LAST]}
    bdb.Breakpoint.clearBreakpoints()


@probe
def name_currentbp() -> None:
    first, second = typed("look", f"b {LAST}", "c", "look").looks
    assert (bool(first["currentbp"]), second["currentbp"]) == (False, 1)


@probe
def name_returnframe() -> None:
    plain, here = Plain(), inspect.currentframe()
    assert here is not None
    plain.reset()
    plain.set_return(here)
    assert plain.returnframe is here
    plain.set_continue()
    assert plain.returnframe is None


@probe
def name_stopframe() -> None:
    plain, here = Plain(), inspect.currentframe()
    assert here is not None
    plain.reset()
    stops: list[FrameType | None] = []
    for command in (plain.set_step, lambda: plain.set_next(here), plain.set_continue):
        plain.botframe = here.f_back
        command()
        stops.append(plain.stopframe)
    assert stops == [None, here, here.f_back]


@probe
def name_stoplineno() -> None:
    plain, here = Plain(), inspect.currentframe()
    assert here is not None
    plain.reset()
    plain.set_next(here)
    assert plain.stoplineno != -1
    plain.set_continue()
    assert plain.stoplineno == -1


@probe
def name_clearBreakpoints() -> None:
    bdb.Breakpoint.clearBreakpoints()
    assert [bdb.Breakpoint("a.py", 1).number, bdb.Breakpoint("a.py", 2).number] == [1, 2]
    bdb.Breakpoint.clearBreakpoints()
    assert bdb.Breakpoint("a.py", 3).number == 1
    bdb.Breakpoint.clearBreakpoints()


@probe
def name__cmdloop() -> None:
    assert calls_of("_cmdloop", "p n", "n", "p n") == [(), ()]


@probe
def name__error_exc() -> None:
    problems: list[BaseException | None] = []

    def note(self: pdb.Pdb) -> None:
        problems.append(sys.exception())

    with mock.patch.object(pdb.Pdb, "_error_exc", note):
        typed("p 1/0", "whatis 1/0")
    assert [type(problem) for problem in problems] == [ZeroDivisionError] * 2


@probe
def name__exec_in_closure() -> None:
    names: dict[str, object] = {"a": 1}
    run: Any = Plain()
    assert run._exec_in_closure("b = (lambda: a + 1)()", {}, names) is True
    assert names == {"a": 1, "b": 2}
    assert run._exec_in_closure("b = 2", {}, names) is False


@probe
def name__getval() -> None:
    assert calls_of("_getval", "p n", "pp n", "whatis n", "source double") == [("n",)] * 3 + [("double",)]


@probe
def name__msg_val_func() -> None:
    calls = calls_of("_msg_val_func", "p n", "pp n")
    assert [(arg, show("a")) for arg, show in calls] == [("n", "'a'")] * 2


@probe
def name__safe_repr() -> None:
    assert calls_of("_safe_repr", "a", "display n") == [(3, "n")] * 2
    assert calls_of("_safe_repr", "r", "retval") == [(6, "retval")]


@probe
def name_aliases() -> None:
    assert typed("alias show p n + 4").aliases == {"show": "p n + 4"}
    plain = Plain("show\nc\n")
    plain.aliases.update(show="p 7")
    plain.reset()
    plain.interaction(inspect.currentframe(), None)
    assert "7\n" in plain.out.getvalue()


@probe
def name_bp_commands() -> None:
    calls = calls_of("bp_commands", "n")
    assert [type(frame).__name__ for (frame,) in calls] == ["frame", "frame"]
    answers: list[object] = []
    before = pdb.Pdb.bp_commands

    def note(self: pdb.Pdb, frame: FrameType) -> bool:
        answers.append(before(self, frame))
        return bool(answers[-1])

    with mock.patch.object(pdb.Pdb, "bp_commands", note):
        typed(f"b {LAST}", "commands 1", "p m", "c", "c")
    # Whether a prompt follows; from 3.14 on the commands are its first lines, and the answer means nothing.
    assert [bool(answer) for answer in answers] == ([True, False] if sys.version_info < (3, 14) else [False, False])


@probe
def name_commands_defining() -> None:
    seen: list[bool] = []
    before = pdb.Pdb.precmd

    def note(self: pdb.Pdb, line: str) -> str:
        seen.append(self.commands_defining)
        return before(self, line)

    with mock.patch.object(pdb.Pdb, "precmd", note):
        typed(f"b {LAST}", "commands 1", "p m", "end", "p n")
    assert [one for one, two in zip(seen, [*seen[1:], None], strict=True) if one != two] == [False, True, False]


@probe
def name_curframe() -> None:
    (look,) = typed("look").looks
    assert look["curframe"].f_code is double.__code__


@probe
def name_curframe_locals() -> None:
    if sys.version_info >= (3, 14):  # there, but deprecated: `p` reads `curframe.f_locals`
        plain = Plain()
        plain.curframe = sys._getframe()
        with pytest.deprecated_call():
            assert plain.curframe_locals["plain"] is plain
        return
    (look,) = typed("look").looks
    assert look["curframe_locals"]["n"] == 3

    def swap(self: pdb.Pdb, arg: str) -> None:
        self.curframe_locals = {"n": 99}

    with mock.patch.object(Plain, "do_swap", swap, create=True):
        assert "99\n" in typed("swap", "p n").out.getvalue()


@probe
def name_curindex() -> None:
    first, second = typed("look", "u", "look").looks
    assert second["curindex"] == first["curindex"] - 1
    assert second["stack"][second["curindex"]][0] is second["curframe"]


@probe
def name_error() -> None:
    assert calls_of("error", "p 1/0", "d") == [("ZeroDivisionError: division by zero",), ("Newest frame",)]


@probe
def name_forget() -> None:
    depths: list[int] = []
    before = pdb.Pdb.forget

    def note(self: pdb.Pdb) -> None:
        depths.append(len(getattr(self, "stack", [])))
        before(self)

    with mock.patch.object(pdb.Pdb, "forget", note):
        plain = typed("n")
    assert depths[-1] > 0 and plain.stack == [] and plain.curframe is None


@probe
def name_interaction() -> None:
    plain, here = Plain("p 'at a frame'\nc\n"), inspect.currentframe()
    plain.reset()
    plain.interaction(here, None)
    assert plain.out.getvalue().startswith(f"> {__file__}(") and "'at a frame'" in plain.out.getvalue()
    try:
        raise ValueError("cause") from KeyError("first")
    except ValueError as error:
        plain = Plain("p 'after an exception'\nexceptions\nc\n")
        plain.reset()
        chained = sys.version_info >= (3, 13)
        plain.interaction(None, error if chained else error.__traceback__)  # type: ignore[arg-type]
    assert "'after an exception'" in plain.out.getvalue()
    assert ("KeyError('first')" in plain.out.getvalue()) == chained


@probe
def name_lookupmodule() -> None:
    assert calls_of("lookupmodule", "b not_there.py:3") == [("not_there.py",)]


@probe
def name_message() -> None:
    assert ("3",) in calls_of("message", "p n")
    assert ("('n', 3)",) in calls_of("message", "pp ('n', n)")


@probe
def name_setup() -> None:
    order: list[str] = []
    setup, message = pdb.Pdb.setup, pdb.Pdb.message

    def note_setup(self: pdb.Pdb, *args: Any) -> None:
        order.append("setup")
        setup(self, *args)

    def note_message(self: pdb.Pdb, *args: Any, **kwargs: Any) -> None:
        order.append("message")
        message(self, *args, **kwargs)

    with mock.patch.multiple(pdb.Pdb, setup=note_setup, message=note_message):
        typed()
    assert order == ["setup", "message"]


@probe
def name_stack() -> None:
    (look,) = typed("look").looks
    assert [frame.f_code.co_name for frame, _ in look["stack"]] == ["runcall", "double"]
    assert look["stack"][-1][1] == FIRST


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.name)
def test_a_name_does_what_it_is_used_for(name: Name) -> None:
    if is_here(name):
        PROBES[name.name]()
    else:
        assert not hasattr(name.owner, name.name)


# ---- the table -------------------------------------------------------------------------------------------------------


def undocumented() -> frozenset[str]:
    """Return the names of bdb and pdb that nothing documents, but for commands."""
    plain = typed("p n")
    names = {*dir(plain), *dir(bdb.Breakpoint)} - {*dir(object), *vars(Plain)} - {"looks", "out"}
    return frozenset(
        name for name in names - {*_DOCUMENTED.split()} if not name.startswith(("do_", "help_", "complete", "__"))
    )


def used(path: Path) -> set[str]:
    """Return the names that a module defines in classes, and those of the attributes that it uses."""
    tree = ast.parse(path.read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"]
    names.update(str(node.args[1].value) for node in calls if isinstance(node.args[1], ast.Constant))
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for each in classes:
        names.update(node.name for node in each.body if isinstance(node, ast.FunctionDef))
        names.update(getattr(node.target, "id", "") for node in each.body if isinstance(node, ast.AnnAssign))
    return names


def test_the_table_has_what_the_adapters_use() -> None:
    here = {name.name for name in NAMES if is_here(name)}
    everything = undocumented()
    names = {name for path in ADAPTERS for name in used(path)}
    assert names & everything - here == set(), "used, and not in NAMES"
    assert here - names == set(), "in NAMES, and not used"
    assert set(PROBES) == {name.name for name in NAMES}


@pytest.mark.slow
def test_nothing_else_uses_them() -> None:
    theirs = {name.name for name in NAMES}
    of_adapters = {name for cls in (bdb_adapter.BdbAdapter, pdb_adapter.PdbAdapter) for name in vars(cls)}
    for path in set(PACKAGE.rglob("*.py")) - {*ADAPTERS}:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base) for base in node.bases}
                assert not bases & {"pdb.Pdb", "bdb.Bdb", "Pdb", "Bdb"}, f"{path}: {node.name} is a pdb"
            if not isinstance(node, ast.Attribute):
                continue
            held = ast.unparse(node.value).split(".")[-1] in ("pdb", "_pdb", "Pdb", "bdb", "Bdb", "Breakpoint")
            assert not held or node.attr not in theirs - of_adapters, f"{path}:{node.lineno} uses {node.attr}"


@pytest.mark.parametrize("word", [word for words in COMMANDS for word in words])
def test_a_command_replaces_one_of_pdb(word: str) -> None:
    assert callable(getattr(pdb.Pdb, f"do_{word}"))


@pytest.mark.parametrize("word", ["c", "n", "step", "q", "jump 3"])
def test_a_command_that_resumes_ends_those_of_a_breakpoint(rank: FakeRank, word: str) -> None:
    """pdb tells such commands by the names of their functions."""
    rank.start(double_of_a_rank)
    rank.stopped()
    rank.ask(f"b {double_of_a_rank.__code__.co_firstlineno + 3}")
    assert rank.send("commands 1")
    assert rank.stopped()["prompt"] == "(com) "
    assert rank.send(word)
    assert rank.stopped()["prompt"] == "(Pdb) "
    rank.ask("clear")
    rank.end()


def double_of_a_rank() -> int:
    breakpoint()
    n = 1
    return n + n
