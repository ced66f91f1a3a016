"""The ratchet: what is said when figures are worse than their bars, or so much better that the bars must follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.house.figures import Figure

__all__ = ["Bar", "complaints"]

#: So many places are named.
_SHOWN = 20


@dataclass(frozen=True)
class Bar:
    """What a figure was when its bar was set, and by how much it may be more or less before somebody is told."""

    was: int
    more: int = 0
    less: int = 0


def complaints(figures: Sequence[Figure], bars: Mapping[str, Bar]) -> list[str]:
    """Return what is wrong, one text for each figure; bars and figures that have no counterpart included."""
    found = [
        f"{figure.name!r} has an aim and no bar; its bar is {figure.now:g}"
        for figure in figures
        if figure.aim is not None and figure.name not in bars
    ]
    found += [f"no figure {name!r}; remove its bar" for name in bars.keys() - {figure.name for figure in figures}]
    for figure in figures:
        bar = bars.get(figure.name)
        if bar is not None and figure.now > bar.was + bar.more:
            found.append("\n".join([_change(figure, bar, "worse"), "look at:", *_shown(figure.places)]))
        elif bar is not None and figure.now < bar.was - bar.less:
            found.append(f"{_change(figure, bar, 'better')}: set its bar to {figure.now:g}")
    return found


def _change(figure: Figure, bar: Bar, word: str) -> str:
    return f"{figure.name!r} is {word}: it was {bar.was} and is {figure.now:g}"


def _shown(places: Sequence[str]) -> list[str]:
    rest = [f"  and {len(places) - _SHOWN} more; `make house` lists them"] if len(places) > _SHOWN else []
    return [*(f"  {place}" for place in places[:_SHOWN]), *rest]
