"""Classes that keep a table of what is under way by a number that they have counted: how requests wait for replies.

Such a class has a method that counts (``next(numbers)``, ``self._count += 1``) and puts something into a table of its
own under that number. A class that does so and waits for no reply is in `REGISTRIES`: each new one is counted until
somebody has decided that.

The calls of endpoints are not meant: their table is given its numbers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.sources import Source

__all__ = ["REGISTRIES", "request_tables"]

#: Tables by number that nobody's reply is looked up in, and what is in them.
REGISTRIES = {
    ("meshrt/debug/dap/root.py", "Mediator"): "open channels",
    ("meshrt/debug/dap/router/channels.py", "Channels"): "open channels",
    ("meshrt/debug/dap/router/ids.py", "Ids"): "numbers that an IDE was told",
    ("meshrt/debug/dap/router/router.py", "Router"): "sessions of IDEs",
    ("meshrt/timeline/root.py", "Timelines"): "recordings",
}


def request_tables(source: Source) -> list[tuple[str, str]]:
    """Return class and attribute of each table by counted number, those of `REGISTRIES` included."""
    found: dict[tuple[str, str], None] = {}
    for node in source.nodes:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    found.update(dict.fromkeys((node.name, table) for table in _tables(method)))
    return list(found)


def _tables(method: ast.AST) -> Iterator[str]:
    """Yield the tables that a method puts something into under a number that it has counted."""
    nodes = list(ast.walk(method))
    counted = {text for node in nodes if (text := _counted(node))}
    if not counted:
        return
    for node in nodes:
        # What has a counted number in it, as `Question(next(self._numbers))`, is told by it too.
        if isinstance(node, ast.Assign) and _mentions(node.value, counted):
            counted.update(target.id for target in node.targets if isinstance(target, ast.Name))
    for node in nodes:
        match node:
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=table), slice=key, ctx=ast.Store()):
                if _mentions(key, counted):
                    yield table


def _counted(node: ast.AST) -> str:
    """Return how the number is written that a statement or expression counts, or ""."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[ast.Name() | ast.Attribute()]):
            return ast.unparse(node)
        case ast.AugAssign(target=ast.Attribute() as target, op=ast.Add(), value=ast.Constant(value=1)):
            return ast.unparse(target)
    return ""


def _mentions(value: ast.expr, texts: set[str]) -> bool:
    return any(ast.unparse(node) in texts for node in ast.walk(value) if isinstance(node, ast.expr))
