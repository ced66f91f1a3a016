"""The source text of code that is shipped by value, so that another process can show it: debuggers, errors.

Code of a script, a module or a notebook cell has a file name that `linecache` knows here. Code from ``python -c``, from
standard input or typed at ``>>>`` has none: its text is found where it still exists (the command line, standard input,
the line editor's history), and where many statements share the name ``<stdin>`` each gets an alias of its own, which
`meshrt.wire.codec` writes into the code that it ships.

Used in the process that ships; any thread.
"""

from __future__ import annotations
import __future__

import ast
import ctypes
import linecache
import os
import re
import stat
import sys
import threading
import types
from collections.abc import Iterator, Mapping

__all__ = ["alias_of", "command_text", "line_of", "source_text", "with_lines"]

_lock = threading.Lock()
_texts: dict[str, str] = {}
_aliases: dict[types.CodeType, str | None] = {}
_STDIN = "<stdin>"
#: A frame of a traceback that no source line follows.
_BARE = re.compile(
    r'^(?P<indent>[ |]*)  File "(?P<file>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>.*)\n(?!(?P=indent)    \S)',
    re.MULTILINE,
)
#: What is in a text for the name of a function that has none. The module itself does not run elsewhere.
_NAMELESS: Mapping[str, type[ast.AST] | types.UnionType | tuple[()]] = {
    "<module>": (),
    "<lambda>": ast.Lambda,
    "<listcomp>": ast.ListComp,
    "<setcomp>": ast.SetComp,
    "<dictcomp>": ast.DictComp,
    "<genexpr>": ast.GeneratorExp,
}
_FEATURES = 0
for _name in __future__.all_feature_names:
    _FEATURES |= getattr(__future__, _name).compiler_flag


def source_text(filename: str) -> str | None:
    """Return the text of ``filename`` as this process has it, or None when it is not known."""
    with _lock:
        text = _texts.get(filename)
    if text is not None:
        return text
    if filename == "<string>":
        return command_text()
    if filename == _STDIN:
        return _stdin_text()
    lines = linecache.getlines(filename) or _typed_lines(filename)
    return "".join(lines) if lines else None


def _typed_lines(filename: str) -> list[str]:
    """Return the lines of a statement typed at ``>>>``.

    Since 3.14 each has a name of its own, and its text is kept under the name, qualified name and line of its code.
    """
    kept: dict[tuple[str, str, int], tuple[int, None, list[str], str]] = getattr(linecache, "_interactive_cache", {})
    return next((lines for (name, *_), (_, _, lines, _) in tuple(kept.items()) if name == filename), [])


def line_of(filename: str, number: int, function: str) -> str:
    """Return a line (counted from 1), without the blanks around it, or "" where it is not known.

    Args:
        function: Runs there. Where the name is that of no file, the text has to have such a function at the line:
            Python gives ``<string>`` to all code that it makes.
    """
    if filename.startswith("<") and not _defines(function, filename, number):
        return ""
    lines = (source_text(filename) or "").splitlines()
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def with_lines(traceback: str) -> str:
    """Fill in the source lines of a traceback that was written where the text of its code is not known.

    Only of code that has no file, or that `linecache` has been given: names of files may come from anywhere.
    """

    def filled(frame: re.Match[str]) -> str:
        name, number = frame["file"], int(frame["line"])
        here = name.startswith("<") or name in linecache.cache
        line = line_of(name, number, frame["function"]) if here else ""
        return frame[0] + (f"{frame['indent']}    {line}\n" if line else "")

    return _BARE.sub(filled, traceback)


def _defines(function: str, filename: str, number: int) -> bool:
    try:
        tree = ast.parse(source_text(filename) or "")
    except (SyntaxError, ValueError):
        return False
    kind = _NAMELESS.get(function, ast.FunctionDef | ast.AsyncFunctionDef)
    here = [node for node in ast.walk(tree) if isinstance(node, kind) and _spans(node, number)]
    return any(getattr(node, "name", function) == function.rpartition(".")[2] for node in here)


def _spans(node: ast.AST, number: int) -> bool:
    return getattr(node, "lineno", 0) <= number <= getattr(node, "end_lineno", 0)


def alias_of(code: types.CodeType) -> str | None:
    """Return the name under which `source_text` finds the source of ``code``, or None to keep its own.

    Only code typed at ``>>>`` needs one.
    """
    if code.co_filename != _STDIN or not (hasattr(sys, "ps1") or sys.flags.interactive):
        return None
    with _lock:
        if code in _aliases:
            return _aliases[code]
    statement, siblings = _in_history(code)
    with _lock:
        alias = f"<typed-{len(_texts) + 1}>" if statement else None
        if alias is not None:
            _texts[alias] = statement
        for known in (*siblings, code):
            _aliases[known] = alias
        return alias


def command_text() -> str | None:
    """Return the argument of ``python -c``; None: this process was started otherwise."""
    arguments = list(sys.orig_argv[1:])
    for index, argument in enumerate(arguments):
        if argument == "-c" and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith("-") and not argument.startswith("--") and "c" in argument:
            # Flags may be joined, as in `-Ic CODE` or `-c'CODE'`.
            return argument.partition("c")[2] or (arguments[index + 1] if index + 1 < len(arguments) else None)
    return None


def _stdin_text() -> str | None:
    """The script that came through standard input: read again from a file, or from what stdio still holds of a pipe."""
    try:
        mode = os.fstat(0).st_mode
        if stat.S_ISREG(mode):
            size = os.fstat(0).st_size
            return os.pread(0, min(size, 16 << 20), 0).decode(errors="replace")
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            return _stdio_buffer()
    except OSError:
        pass  # closed, or replaced by what has no text
    return None


def _stdio_buffer() -> str | None:
    # The interpreter has read the whole pipe through C stdio; a script that fits into its buffer is still there.
    # glibc: struct _IO_FILE { int flags; char *read_{ptr,end,base}, *write_{base,ptr,end}, *buf_base, *buf_end; ... }
    file = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdin").value
    if file is None:
        return None
    *_, base, end = (ctypes.c_void_p * 9).from_address(file)
    if not base or not end or end <= base:
        return None
    lines = ctypes.string_at(base, end - base).partition(b"\0")[0].decode(errors="replace").splitlines(keepends=True)
    # The end of the text is not known any more: anything may follow it. It is the right one if it explains all the
    # code that runs.
    for count in range(len(lines), 0, -1):
        text = "".join(lines[:count])
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        return text if tree.body and _explains_main(text) else None
    return None


def _explains_main(text: str) -> bool:
    """Whether every function of ``__main__`` comes from ``text``."""
    found = set(_inner_codes(compile(text, _STDIN, "exec", dont_inherit=True)))
    main = vars(sys.modules["__main__"]).values()
    owners = [vars(value).values() for value in main if isinstance(value, type)]
    functions = [value for values in (main, *owners) for value in values if isinstance(value, types.FunctionType)]
    codes = [function.__code__ for function in functions if function.__code__.co_filename == _STDIN]
    return all(code in found for code in codes)


def _in_history(code: types.CodeType) -> tuple[str, list[types.CodeType]]:
    """Return the newest typed statement that compiles to ``code`` ("": there is none), and all code in it."""
    readline = sys.modules.get("readline")
    if readline is None:
        return "", []
    lines = [readline.get_history_item(index + 1) or "" for index in range(readline.get_current_history_length())]
    for start in range(len(lines) - 1, -1, -1):
        if not lines[start] or lines[start][0].isspace():
            continue
        for text in _statements(lines, start):
            # With the __future__ features of that code, and without this module's.
            flags = code.co_flags & _FEATURES
            inner = list(_inner_codes(compile(text, _STDIN, "exec", flags, dont_inherit=True)))
            if code in inner:
                return text, inner
    return "", []


def _statements(lines: list[str], start: int) -> Iterator[str]:
    """Yield the texts that begin at ``lines[start]`` and parse as one statement; history drops empty lines."""
    for end in range(start + 1, min(len(lines), start + 2000) + 1):
        if end < len(lines) and lines[end][:1].isspace():
            continue
        text = "\n".join(lines[start:end]) + "\n"
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        if len(tree.body) == 1:
            yield text
        return


def _inner_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from _inner_codes(const)
