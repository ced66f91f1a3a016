"""Modules that parse what a person typed: a command line of the shell, or a line at a prompt or console.

Such a module

* makes an ``ArgumentParser``, or a class of that kind,
* looks into ``arguments`` or ``argv`` by index, in ``main``,
* or splits or matches a typed line: a text parameter ``line``, or an own attribute ``_line``, as typed lines are called
  in all of meshrt. To split a text at line ends is no parsing.

Parsers of other things (selections, sizes, files, Python) are not meant; that of pdb, which is inherited, neither.
"""

from __future__ import annotations

import ast

from tests.support.sources import Source

__all__ = ["parsers"]

_SPLITS = {"split", "rsplit", "partition", "rpartition"}
_MATCHES = {"match", "fullmatch", "search", "finditer", "findall", "sub"}
_LINE_ENDS = {"\n", "\r", "\r\n"}


def parsers(source: Source) -> list[str]:
    """Return what parses typed lines in a module: ``ArgumentParser``, and names of functions; [] if nothing does."""
    functions = (node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    by_hand = [each.name for each in functions if _parses_by_hand(each)]
    return ["ArgumentParser", *by_hand] if any(map(_is_argument_parser, source.nodes)) else by_hand


def _is_argument_parser(node: ast.AST) -> bool:
    named = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
    return any("ArgumentParser" in (getattr(name, "id", ""), getattr(name, "attr", "")) for name in named)


def _parses_by_hand(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    typed = any(each.arg == "line" and each.annotation and _is_text(each.annotation) for each in parameters)
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments):
                splits = name in _SPLITS and _is_line(value, typed) and not any(map(_is_line_end, arguments))
                if splits or (name in _MATCHES and any(_is_line(each, typed) for each in arguments)):
                    return True
            case ast.Subscript(value=ast.Name(id="arguments" | "argv"), slice=ast.Constant(value=int())):
                if function.name == "main":
                    return True
    return False


def _is_text(annotation: ast.expr) -> bool:
    return ast.unparse(annotation) in ("str", "str | None")


def _is_line(value: ast.expr, typed: bool) -> bool:
    """Whether a value is the typed line, or a part of it, or what a method of it returns."""
    match value:
        case ast.Name(id="line"):
            return typed
        case ast.Attribute(value=ast.Name(id="self"), attr="_line"):
            return True
        case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Call(func=inner):
            return _is_line(inner, typed)
    return False


def _is_line_end(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Constant) and argument.value in _LINE_ENDS
