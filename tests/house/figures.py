"""The figures, each with its aim and with the places that it comes from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tests.house.graph import circles, crumbs, import_graph
from tests.house.parsers import parsers
from tests.house.requests import REGISTRIES, request_tables
from tests.house.sizes import any_names, code_lines
from tests.house.twins import without_twin
from tests.support.sources import ROOT, Source, read_sources

__all__ = ["Figure", "figures", "figures_of_meshrt"]

#: Of a sum, so many modules are named: those with the largest parts.
_LARGEST = 10


@dataclass(frozen=True)
class Figure:
    """A number that is the better, the smaller it is; one without an aim only describes.

    ``places`` has one text for each place that counts, or for those that add most to it.
    """

    name: str
    now: float
    aim: int | None = None
    places: Sequence[str] = ()


def figures_of_meshrt() -> list[Figure]:
    """Return the figures of ``meshrt/`` as it is in this checkout."""
    tests = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/unit").rglob("test_*.py")}
    return figures(read_sources("meshrt"), tests)


def figures(sources: Sequence[Source], tests: Collection[str]) -> list[Figure]:
    """Return the figures of the modules ``sources``.

    Args:
        tests: Paths of the unit tests that there are, as in `Source.path`.
    """
    graph = import_graph(sources)
    found = circles(graph)
    lengths = {source.path: len(source.lines) for source in sources}
    parsing = {source.path: ways for source in sources if (ways := parsers(source))}
    return [
        _sum("lines of code", 34_000, sources, lambda source: len(code_lines(source))),
        _sum("uses of Any", 250, sources, any_names),
        _list("circles of imports", 0, [", ".join(circle) for circle in found]),
        _list("modules in circles", 0, [path for circle in found for path in circle]),
        _list("small modules with one importer", 5, [f"{one} (of {other})" for one, other in crumbs(sources, graph)]),
        _list("parsers of command lines", 1, [f"{path}: {', '.join(ways)}" for path, ways in parsing.items()]),
        _list("mechanisms of request and reply", 1, _mechanisms(sources)),
        Figure("modules", len(sources)),
        Figure("median lines of a module", statistics.median(lengths.values())),
        _longest(lengths),
        _list("modules over 400 lines", None, _longer(lengths, 400)),
        _list("modules over 700 lines", 0, _longer(lengths, 700)),
        _list("modules with logic, without unit tests", 0, without_twin(sources, tests)),
    ]


def _sum(name: str, aim: int, sources: Sequence[Source], size: Callable[[Source], int]) -> Figure:
    sizes = {source.path: size(source) for source in sources}
    largest = sorted((path for path in sizes if sizes[path]), key=lambda path: -sizes[path])[:_LARGEST]
    return Figure(name, sum(sizes.values()), aim, [f"{path}: {sizes[path]}" for path in largest])


def _list(name: str, aim: int | None, places: Sequence[str]) -> Figure:
    return Figure(name, len(places), aim, places)


def _mechanisms(sources: Sequence[Source]) -> list[str]:
    return [
        f"{source.path}: {owner}.{table}"
        for source in sources
        for owner, table in request_tables(source)
        if (source.path, owner) not in REGISTRIES
    ]


def _longest(lengths: dict[str, int]) -> Figure:
    path = max(lengths, key=lengths.__getitem__)
    return Figure("lines of the longest module", lengths[path], 700, [f"{path}: {lengths[path]}"])


def _longer(lengths: dict[str, int], most: int) -> list[str]:
    return [f"{path}: {length}" for path, length in lengths.items() if length > most]
