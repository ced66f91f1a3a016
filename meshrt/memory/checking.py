"""Checks a document that was read from a file: each key that docs/json.md defines has a value of its kind.

Further keys of a newer or an older version are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["check"]

#: More bytes than any memory has; a larger number cannot be shown or added up.
_MOST = 1 << 62
_DIGITS = 19


class _Some(NamedTuple):
    """A list of things of one kind.

    Attributes:
        least: Least number of items.
    """

    each: Any
    least: int = 0


class _ByName(NamedTuple):
    """An object whose values are of one kind.

    Attributes:
        numbers: Whether its keys are numbers.
    """

    each: Any
    numbers: bool = False


def _maybe(**kinds: Any) -> dict[str, Any]:
    """Return keys that may be missing."""
    return {f"{name}?": kind for name, kind in kinds.items()}


def _counts(*names: str) -> dict[str, Any]:
    return _maybe(**dict.fromkeys(names, int))


_GROWTHS = {**_counts("growth", "grown"), **_maybe(growth_exact=bool, grown_exact=bool)}
_LEFT_OUT = {"count": int, "bytes": int, **_maybe(exact=bool)}
_DEVICE = {"kept": int, **_maybe(used=int, visible=str)}
_PROCESS = {
    "pid": int,
    **_counts("rss", "pss", "shared", "anonymous", "file", "shmem", "swap", "unique", "mapped", "total"),
    **_maybe(exact=bool, variables_left_out=_LEFT_OUT),
}
_RANK = {
    **_PROCESS,
    **dict.fromkeys(("mesh_id", "mesh", "host", "state"), str),
    "rank": int,
    "coords": _ByName(int),
    "actors": _Some(str),
    **_maybe(note=str, node=str, address=str, devices=_ByName(_DEVICE), restarted=bool),
    **_counts("store_own", "store_held", "store_pinned", "malloc_free", "malloc_used", "unexplained"),
    **_GROWTHS,
}
_SIZE = {
    "ranks": _Some(int, 1),
    "bytes": int,
    "exact": bool,
    **_counts("estimate", "length", "objects"),
    **_maybe(why=str, dtype=str, device=str, shape=_Some(int), devices=_ByName(int), **{"with": _Some(str)}),
    **_GROWTHS,
}
_NAMED = dict.fromkeys(("mesh_id", "actor", "kind", "where", "type"), str)
_VARIABLE = {**_NAMED, "sizes": _Some(_SIZE, 1)}
_HOLDING = {**_NAMED, "ranks": _Some(int, 1), "references": _Some(str), "count": int}
_REFERENCE = {
    **dict.fromkeys(("host", "kind", "site"), str),
    **dict.fromkeys(("owner", "size", "count"), int),
    "disk": bool,
    "age": float,
    "holders": _Some((int, int)),
    "names": _Some(str, 1),
    **_GROWTHS,
}
_STORE = {"host": str, "committed": int, "limit": int, "fetched": {"bytes": int, "count": int}, **_counts("files")}
_OF_VARIABLES = ("ranks", "unique", "total", "rss", "file", "shmem", "malloc_free", "unexplained")
_TOTALS = {
    **dict.fromkeys(("ranks", "rss", "pss", "swap", "without_pss", "runtime"), int),
    **_maybe(variables={**dict.fromkeys(_OF_VARIABLES, int), "exact": bool}, devices=_ByName(int)),
    **_counts("growth", "grown", "without_rss"),
}
_TABLES = frozenset(("variables", "references"))
_DOCUMENT = {
    "time": float,
    "run_id": str,
    "ranks": _Some(_RANK),
    "processes": _Some({**_PROCESS, "kind": str}),
    "totals": _TOTALS,
    **_maybe(
        script=str, chosen=bool, opened=str, stores=_Some(_STORE), ended=_Some(str), references_ended=_Some(_REFERENCE)
    ),
    **_maybe(since=float, since_first=float, since_run=str, not_compared=_Some(_TABLES)),
}
#: Keys that a document has all together, or none of them.
_TOGETHER = (
    {"variables": _Some(_VARIABLE), "variables_left_out": _LEFT_OUT},
    {"references": _Some(_REFERENCE), "references_left_out": _LEFT_OUT, "holders": _ByName((str, int), numbers=True)},
    {"holding": _Some(_HOLDING), "holding_exact": bool, "references": _Some(_REFERENCE)},
)
_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def check(document: Mapping[str, Any]) -> None:
    """Raise ValueError if a value of a document is missing or of another kind; the text names it."""
    _check(document, _DOCUMENT, "")
    for kinds in _TOGETHER:
        if next(iter(kinds)) in document:
            _check(document, kinds, "")
    for rows in ("ranks", "processes"):
        for number, row in enumerate(document[rows]):
            if "unique" in row and "exact" not in row:
                raise ValueError(f"{rows}[{number}].exact is missing; expected {_WORDS[bool]}")
    if "variables" in document and "variables" not in document["totals"]:
        raise ValueError("totals.variables is missing; expected an object")
    if "since" in document and "growth" not in document["totals"]:
        raise ValueError(f"totals.growth is missing; expected {_WORDS[int]}")


def _check(value: Any, kind: Any, place: str) -> None:
    if not _is(value, kind):
        raise ValueError(f"{place} is {_shown(value)}; expected {_expected(kind)}")
    if isinstance(kind, _Some | _ByName):
        inside = enumerate(value) if isinstance(kind, _Some) else value.items()
        for key, each in inside:
            _check(each, kind.each, f"{place}[{key!r}]")
    elif isinstance(kind, dict):
        for key, each in kind.items():
            name = key.removesuffix("?")
            at = f"{place}.{name}".removeprefix(".")
            if name in value:
                _check(value[name], each, at)
            elif key == name:
                raise ValueError(f"{at} is missing; expected {_expected(each)}")


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of a kind; its items are not checked."""
    if isinstance(kind, _Some):
        return isinstance(value, list) and len(value) >= kind.least
    if isinstance(kind, _ByName):
        return isinstance(value, dict) and (
            not kind.numbers or all(key.isdecimal() and len(key) < _DIGITS for key in value)
        )
    if isinstance(kind, dict):
        return isinstance(value, dict)
    if isinstance(kind, tuple):
        return isinstance(value, list) and len(value) == len(kind) and all(map(_is, value, kind))
    if isinstance(kind, frozenset):
        return isinstance(value, str) and value in kind
    if kind is float:
        return _is(value, int) or (isinstance(value, float) and math.isfinite(value) and abs(value) < _MOST)
    return type(value) is kind and (kind is not int or abs(value) < _MOST)


def _expected(kind: Any) -> str:
    if type(kind) is tuple:
        return f"[{', '.join(map(_expected, kind))}]"
    if isinstance(kind, frozenset):
        return f"one of {', '.join(sorted(kind))}"
    if isinstance(kind, _Some):
        return "a list" + (" that is not empty" if kind.least else "")
    if isinstance(kind, _ByName) and kind.numbers:
        return "an object whose keys are numbers"
    return str(_WORDS.get(kind, "an object")) if isinstance(kind, type) else "an object"


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return "null" if value is None else repr(value)[:40]
