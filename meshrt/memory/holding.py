"""Which variables of a rank hold which references: what keeps an object in shared memory.

A variable holds what it reaches (`meshrt.memory.walk`): references, and arrays and tensors in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from meshrt.hooks.facts import ActorState, Variable
from meshrt.memory.operations import FindHolders, Holders, HoldingRow
from meshrt.memory.sizing import Budget, Snapshot
from meshrt.memory.variables import all_variables, namespaces, type_name
from meshrt.memory.walk import BUDGET

__all__ = ["holding"]

#: References that are named for one variable.
_NAMES = 20


def holding(actors: Sequence[ActorState], asked: FindHolders, more: Iterable[Variable] = ()) -> Holders:
    """Return the variables that hold references; ``more``: further variables."""
    budget = Budget.of(asked.milliseconds, asked.objects)
    known = chain(more, all_variables(actors, frames=True))
    variables = [each for each in known if asked.actor in ("", each.actor)]
    snapshot = Snapshot(stop=namespaces(actors))
    found, exact = [], True
    for number, variable in enumerate(variables):
        size = snapshot.measure(variable.value, budget)
        exact = exact and size.why != BUDGET
        names = sorted(f"{segment:016x}" for segment in snapshot.segments(number))
        names = [name for name in names if name.startswith(asked.begins)]
        if names:
            row = HoldingRow(
                actor=variable.actor,
                kind=variable.kind,
                where=variable.where,
                type=type_name(variable.value),
                references=names[:_NAMES],
                count=len(names),
            )
            found.append(row)
    return Holders(found, exact)
