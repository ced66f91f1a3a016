"""The rows of one rank: its variables by size, as plain data.

A row: ``{"actor", "kind", "where", "type", "bytes", "exact"}``, and, if they apply, ``"shape"``, ``"dtype"``,
``"device"``, ``"length"``, ``"objects"``, ``"estimate"``, ``"why"`` (it is not exact), ``"devices"`` (bytes by device)
and ``"with"`` (other variables that hold the same memory).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from types import FunctionType
from typing import Any

from meshrt.hooks.facts import ActorState, Body, Variable
from meshrt.inspect.capping import cap
from meshrt.memory.buffers import Buffers
from meshrt.memory.sizing import Budget, Size, Snapshot
from meshrt.memory.variables import all_variables, facts_of, namespaces, type_name
from meshrt.memory.walk import BUDGET

__all__ = ["SHARED", "row_of", "rows", "weight"]

#: The share of a rank's time that one variable may take, until all have had theirs.
_SHARE = 0.1
#: Least shared bytes that are shown: many variables share small objects.
SHARED = 1024
#: Classes with many objects, few of which hold anything.
_SMALL = (FunctionType, staticmethod, classmethod, property)
#: Facts that are shown also if they are empty.
_TOLD = ("shape", "length")
#: Names that a row lists.
_NAMES = 5
_NAME_MAX = 200


def rows(actors: Sequence[ActorState], asked: Body, more: Iterable[Variable] = ()) -> dict[str, Any]:
    """Return ``{"rows", "left_out": {"count", "bytes", "exact"}, "unique", "mapped", "total", "exact", "counted"}``.

    ``rows`` are the largest, ``left_out`` the others. ``unique`` counts shared bytes once, ``total`` for each variable;
    both are lower bounds unless ``exact``.
    ``mapped``: the part of ``unique`` in files or in shared memory; None: the kernel does not report it.
    ``counted``: processor seconds that the count took.

    Args:
        asked: ``{"actor" ("": all), "frames", "milliseconds" (null: no limit), "objects" (null: no limit), "most"}``.
        more: Variables that are measured before all others.
    """
    milliseconds = asked.get("milliseconds")
    budget = Budget(None if milliseconds is None else milliseconds / 1000, asked.get("objects"))
    known = all_variables(actors, frames=bool(asked.get("frames")))
    variables = [each for each in chain(more, known) if asked.get("actor") in ("", None, each.actor)]
    snapshot = Snapshot(stop=namespaces(actors))
    sizes = [snapshot.measure(each.value, budget.part(_SHARE)) for each in variables]
    for number in snapshot.unfinished():
        sizes[number] = snapshot.go_on(number, budget.part(1.0))
    sharers = snapshot.sharers(SHARED)
    held = [n for n, size in enumerate(sizes) if size.devices or size.bytes > _least(variables[n].value)]
    held.sort(key=lambda n: -weight(sizes[n]))
    # A function may hold anything: its size was not known when the budget ended.
    unknown = [n for n in set(range(len(sizes))).difference(held) if sizes[n].why == BUDGET]
    most = int(asked["most"])
    rest = [sizes[number] for number in chain(held[most:], unknown)]
    buffers = Buffers()
    return {
        "rows": [
            row_of(variables[n], sizes[n], [variables[other] for other in sharers[n]], buffers) for n in held[:most]
        ],
        "left_out": {
            "count": len(rest),
            "bytes": sum(size.bytes for size in rest),
            "exact": all(size.exact for size in rest),
        },
        "unique": snapshot.unique(),
        "mapped": _mapped(snapshot),
        "total": sum(size.bytes for size in sizes),
        "exact": all(size.exact for size in sizes),
        "counted": budget.seconds(),
    }


def _mapped(snapshot: Snapshot) -> int | None:
    try:
        return snapshot.mapped()
    except OSError:
        return None  # for example, no descriptor is left; the sizes of its variables are known all the same


def _least(value: Any) -> int:
    """Return the least bytes for which a variable gets a row: functions and methods are many, and small."""
    return SHARED if any(type(value) is cls for cls in _SMALL) else 0


def weight(size: Size) -> int:
    """Return the bytes of a variable on all devices."""
    return size.bytes + sum(size.devices.values())


def row_of(variable: Variable, size: Size, sharers: Sequence[Variable], buffers: Buffers) -> dict[str, Any]:
    """Return the row of a variable.

    Args:
        sharers: Others that hold the same memory.
    """
    row: dict[str, Any] = {
        "actor": variable.actor,
        "kind": variable.kind,
        "where": cap(variable.where, _NAME_MAX),
        "type": cap(type_name(variable.value), _NAME_MAX),
        "bytes": size.bytes,
        "exact": size.exact,
    }
    names = [cap(each.where, _NAME_MAX) for each in sharers]
    more = {
        **_facts(variable.value, buffers),
        "objects": size.objects if size.objects > 1 else 0,
        "estimate": size.estimate,
        "why": size.why,
        "devices": size.devices,
        "with": list(chain(names[:_NAMES], ["..."] * (len(names) > _NAMES))),
    }
    return {**row, **{name: value for name, value in more.items() if value or (name in _TOLD and value is not None)}}


def _facts(value: Any, buffers: Buffers) -> dict[str, Any]:
    try:
        return {**facts_of(value), **buffers.facts(value)}
    except Exception:
        return {}  # numpy or torch raised; the class is shown anyway
