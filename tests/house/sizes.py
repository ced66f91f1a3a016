"""Sizes: lines of code, uses of ``Any``, and whether a module has logic of its own."""

from __future__ import annotations

import ast
import functools
import io
import tokenize

from tests.support.sources import Source

__all__ = ["LOGIC", "any_names", "code_lines", "has_logic"]

#: A function of more lines of code in its body is logic.
LOGIC = 5

_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@functools.cache
def code_lines(source: Source) -> frozenset[int]:
    """Return the numbers of the lines with code: no docstring, no comment, no blank line.

    A text below a constant or a field that says what it is counts as a docstring.
    """
    documentation = {
        (node.value.lineno, node.value.col_offset)
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    return frozenset(
        line
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline)
        if token.type not in _LAYOUT and not (token.type == tokenize.STRING and token.start in documentation)
        for line in range(token.start[0], token.end[0] + 1)
    )


def any_names(source: Source) -> int:
    """Return how often ``Any`` is named, its import not counted."""
    names = (getattr(node, "id", "") or getattr(node, "attr", "") for node in source.nodes)
    return sum(name == "Any" for name in names)


def has_logic(source: Source) -> bool:
    """Whether a function or method has more than `LOGIC` lines of code in its body."""
    lines = code_lines(source)
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            if len(lines.intersection(body)) > LOGIC:
                return True
    return False
