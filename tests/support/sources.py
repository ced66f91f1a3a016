"""Source files as those read them that check the code or count in it: path, text, syntax tree, imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["ROOT", "Finding", "Imported", "Source", "read_sources"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Finding:
    """One broken rule, where an editor can jump to."""

    path: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


@dataclass(frozen=True)
class Imported:
    """One module that an import names (``from a import b`` counts as ``a.b``: it may be a module)."""

    name: str
    alias: str
    node: ast.stmt | ast.expr
    in_function: bool
    type_checking: bool


@dataclass(frozen=True)
class Source:
    """One file: its path from the root of the project, with slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def package(self) -> str:
        """First name below ``meshrt``: ``wire`` for meshrt/wire/codec.py, ``errors`` for meshrt/errors.py."""
        return self.path.split("/")[1].removesuffix(".py")

    @cached_property
    def imports(self) -> tuple[Imported, ...]:
        return tuple(self._imports(self.tree, in_function=False, type_checking=False))

    def _imports(self, parent: ast.AST, *, in_function: bool, type_checking: bool) -> Iterator[Imported]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Imported(alias.name, alias.asname or alias.name, node, in_function, type_checking)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    yield Imported(f"{base}.{alias.name}", alias.asname or alias.name, node, in_function, type_checking)
            elif isinstance(node, ast.Call) and (name := _imported_by_call(node)):
                yield Imported(name, "", node, in_function, type_checking)
            inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(node, ast.If) and _is_type_checking(node.test):
                body, orelse = (ast.Module(body=branch, type_ignores=[]) for branch in (node.body, node.orelse))
                yield from self._imports(body, in_function=inside, type_checking=True)
                yield from self._imports(orelse, in_function=inside, type_checking=type_checking)
            else:
                yield from self._imports(node, in_function=inside, type_checking=type_checking)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folder = self.path.split("/")[:-1]
        parts = folder[: len(folder) - node.level + 1]
        return ".".join([*parts, node.module] if node.module else parts)

    def finding(self, node: ast.AST, problem: str) -> Finding:
        return Finding(self.path, getattr(node, "lineno", 1), problem)


def _imported_by_call(node: ast.Call) -> str:
    """The module that ``importlib.import_module("x")`` or ``__import__("x")`` names, or ""."""
    if (isinstance(node.func, ast.Name) and node.func.id in ("__import__", "import_module")) or (
        isinstance(node.func, ast.Attribute) and node.func.attr == "import_module"
    ):
        match node.args:
            case [ast.Constant(value=str(name)), *_]:
                return name
    return ""


def _is_type_checking(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def read_sources(*folders: str) -> list[Source]:
    """Every Python file below these folders of the project."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]
