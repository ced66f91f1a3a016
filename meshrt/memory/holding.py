"""Which variables of a rank hold which references: what keeps an object in shared memory.

A variable holds what it reaches (`meshrt.memory.walk`): references, and arrays and tensors in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from meshrt.hooks.facts import ActorState, Body, Variable
from meshrt.memory.sizing import Budget, Snapshot
from meshrt.memory.variables import all_variables, namespaces, type_name
from meshrt.memory.walk import BUDGET

__all__ = ["holding"]

#: References that are named for one variable.
_NAMES = 20


def holding(actors: Sequence[ActorState], asked: Body, more: Iterable[Variable] = ()) -> dict[str, Any]:
    """Return ``{"rows": [{"actor", "kind", "where", "type", "references", "count"}], "exact": all was walked}``.

    Args:
        asked: ``{"actor" ("": all), "milliseconds" (null: no limit), "objects" (null: no limit), "name"}``; ``name``:
            how the names of the references begin.
        more: Further variables.
    """
    milliseconds = asked.get("milliseconds")
    budget = Budget(None if milliseconds is None else milliseconds / 1000, asked.get("objects"))
    known = chain(more, all_variables(actors, frames=True))
    variables = [each for each in known if asked["actor"] in ("", each.actor)]
    snapshot = Snapshot(stop=namespaces(actors))
    found, exact = [], True
    for number, variable in enumerate(variables):
        size = snapshot.measure(variable.value, budget)
        exact = exact and size.why != BUDGET
        names = sorted(f"{segment:016x}" for segment in snapshot.segments(number))
        names = [name for name in names if name.startswith(asked["name"])]
        if names:
            facts = {"actor": variable.actor, "kind": variable.kind, "where": variable.where}
            facts["type"] = type_name(variable.value)
            found.append({**facts, "references": names[:_NAMES], "count": len(names)})
    return {"rows": found, "exact": exact}
