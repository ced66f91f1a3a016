"""The rows of one rank: its variables by size, and those that hold references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from types import FunctionType

from meshrt.hooks.facts import ActorState, Variable
from meshrt.inspect.capping import cap
from meshrt.memory.buffers import Buffers
from meshrt.memory.operations import (
    FindHolders,
    Holders,
    HoldingRow,
    LeftOut,
    MeasureVariables,
    SizeRow,
    VariableRow,
    Variables,
)
from meshrt.memory.sizing import Budget, Size, Snapshot
from meshrt.memory.variables import Facts, all_variables, facts_of, namespaces, type_name
from meshrt.memory.walk import BUDGET

__all__ = ["SHARED", "holding", "row_of", "rows"]

#: The share of a rank's time that one variable may take, until all have had theirs.
_SHARE = 0.1
#: Least shared bytes that are shown: many variables share small objects.
SHARED = 1024
#: Classes with many objects, few of which hold anything.
_SMALL = (FunctionType, staticmethod, classmethod, property)
#: Names that a row lists.
_NAMES = 5
_NAME_MAX = 200
#: References that are named for one variable.
_REFERENCES = 20


def rows(
    actors: Sequence[ActorState], asked: MeasureVariables, more: Iterable[Variable] = ()
) -> tuple[Variables, float]:
    """Return the variables of this process, and the processor seconds that the count took.

    Args:
        more: Variables that are measured before all others.
    """
    budget = Budget.of(asked.milliseconds, asked.objects)
    known = all_variables(actors, frames=asked.frames)
    variables = [each for each in chain(more, known) if asked.actor in ("", each.actor)]
    snapshot = Snapshot(stop=namespaces(actors))
    sizes = [snapshot.measure(each.value, budget.part(_SHARE)) for each in variables]
    for number in snapshot.unfinished():
        sizes[number] = snapshot.go_on(number, budget.part(1.0))
    sharers = snapshot.sharers(SHARED)
    held = [n for n, size in enumerate(sizes) if size.devices or size.bytes > _least(variables[n].value)]
    held.sort(key=lambda n: -sizes[n].likely)
    # A function may hold anything: its size was not known when the budget ended.
    unknown = [n for n in set(range(len(sizes))).difference(held) if sizes[n].why == BUDGET]
    rest = [sizes[number] for number in chain(held[asked.most :], unknown)]
    buffers = Buffers()
    told = Variables(
        rows=[
            row_of(variables[n], sizes[n], [variables[other] for other in sharers[n]], buffers)
            for n in held[: asked.most]
        ],
        left_out=LeftOut(len(rest), sum(size.bytes for size in rest), all(size.exact for size in rest)),
        unique=snapshot.unique(),
        mapped=_mapped(snapshot),
        total=sum(size.bytes for size in sizes),
        exact=all(size.exact for size in sizes),
    )
    return told, budget.seconds()


def holding(actors: Sequence[ActorState], asked: FindHolders, more: Iterable[Variable] = ()) -> Holders:
    """Return the variables that hold references, or arrays and tensors in shared memory; ``more``: other variables."""
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
                references=names[:_REFERENCES],
                count=len(names),
            )
            found.append(row)
    return Holders(found, exact)


def _mapped(snapshot: Snapshot) -> int | None:
    try:
        return snapshot.mapped()
    except OSError:
        return None  # for example, no descriptor is left; the sizes of its variables are known all the same


def _least(value: object) -> int:
    """Return the least bytes for which a variable gets a row: functions and methods are many, and small."""
    return SHARED if any(type(value) is cls for cls in _SMALL) else 0


def row_of(variable: Variable, size: Size, sharers: Sequence[Variable], buffers: Buffers) -> VariableRow:
    """Return the row of a variable.

    Args:
        sharers: Others that hold the same memory.
    """
    names = [cap(each.where, _NAME_MAX) for each in sharers]
    return VariableRow(
        actor=variable.actor,
        kind=variable.kind,
        where=cap(variable.where, _NAME_MAX),
        type=cap(type_name(variable.value), _NAME_MAX),
        sizes=[
            SizeRow(
                **_facts(variable.value, buffers),
                bytes=size.bytes,
                exact=size.exact,
                objects=size.objects if size.objects > 1 else 0,
                estimate=size.estimate,
                why=size.why,
                devices=size.devices,
                shares=(*names[:_NAMES], *["..."] * (len(names) > _NAMES)),
            )
        ],
    )


def _facts(value: object, buffers: Buffers) -> Facts:
    try:
        return buffers.facts(value) or facts_of(value)
    except Exception:
        return {}  # numpy or torch raised; the class is shown anyway
