"""Which module imports which: circles, and small modules that only one other module uses.

An import inside a function and one under ``TYPE_CHECKING`` count like any other. That a module of a package loads the
package itself does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from tests.support.sources import Source

__all__ = ["SMALL", "Graph", "circles", "crumbs", "import_graph"]

#: By path of a module, the paths of the modules that it imports.
Graph = Mapping[str, Set[str]]
#: Lines of a file, all of them, from which on it is not small.
SMALL = 60

_NO_CRUMBS = ("__init__.py", "__main__.py")


def import_graph(sources: Sequence[Source]) -> Graph:
    """Return what each module imports of the others."""
    paths = {_dotted(source.path): source.path for source in sources}
    graph: dict[str, set[str]] = {}
    for source in sources:
        found = (_module(imported.name, paths) for imported in source.imports)
        graph[source.path] = {path for path in found if path and path != source.path}
    return graph


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _module(name: str, paths: Mapping[str, str]) -> str:
    """Return the path of the module that an import names, or in which the object is that it names; "": none of ours."""
    while name not in paths and "." in name:
        name = name.rpartition(".")[0]
    return paths.get(name, "")


def circles(graph: Graph) -> list[tuple[str, ...]]:
    """Return the sets of modules that import each other, directly or by way of others."""
    reached = {path: _reached(path, graph) for path in graph}
    found = {
        tuple(sorted(other for other in reached[path] if path in reached[other]))
        for path in graph
        if path in reached[path]
    }
    return sorted(found)


def _reached(path: str, graph: Graph) -> set[str]:
    found: set[str] = set()
    waiting = [path]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def crumbs(sources: Sequence[Source], graph: Graph) -> list[tuple[str, str]]:
    """Return the small modules that one other module imports, each with that module."""
    found = []
    for source in sources:
        importers = [path for path, imported in graph.items() if source.path in imported]
        if len(importers) == 1 and len(source.lines) < SMALL and not source.path.endswith(_NO_CRUMBS):
            found.append((source.path, importers[0]))
    return found
