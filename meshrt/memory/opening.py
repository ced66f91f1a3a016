"""The rows of one rank about one variable that is opened: the variable itself, and what is inside, the largest first.

Half of the budget is for the variable as a whole, half for what is inside, beginning with the children that are large
by themselves. Children that the budget does not reach, and children that are too small to show, share one row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from sys import getsizeof
from typing import Any

import msgspec

from meshrt.hooks.facts import ActorState, Variable
from meshrt.memory.buffers import Buffers
from meshrt.memory.inside import children, find
from meshrt.memory.kinds import ATOMS, PLAIN
from meshrt.memory.operations import MeasureVariables, VariableRow, Variables
from meshrt.memory.rows import SHARED, row_of
from meshrt.memory.sizing import Budget, Size, Snapshot
from meshrt.memory.variables import all_variables, namespaces, type_name
from meshrt.memory.walk import BUDGET

__all__ = ["opened"]

#: The share of the budget for one child, until all have had theirs.
_EACH = 0.1
#: Rows of children, at most.
_MOST_ROWS = 100
#: Bytes that are assumed for an object whose size is not known.
_UNKNOWN = 1 << 16
#: Classes by identity, as a metaclass may define ``==``.
_ATOMS, _PLAIN = frozenset(map(id, ATOMS)), frozenset(map(id, PLAIN))


def opened(
    actors: Sequence[ActorState], asked: MeasureVariables, more: Iterable[Variable] = ()
) -> tuple[Variables, float]:
    """Return what is inside the variable ``asked.opened``, and the processor seconds that the count took.

    Args:
        more: Further variables.
    """
    known = chain(more, all_variables(actors, frames=True))
    variables = [each for each in known if asked.actor in ("", each.actor)]
    found = find(asked.opened, variables)
    if isinstance(found, str):
        return Variables(unknown=found), 0.0
    spent = Budget()
    part = None if asked.milliseconds is None else asked.milliseconds / 1000 / 2 / len(found)
    stop = list(namespaces(actors))
    told: list[VariableRow] = []
    wholes = []
    for variable in found:
        size = Snapshot(stop=stop).measure(variable.value, Budget(part, asked.objects))
        wholes.append(size)
        told += [row_of(variable, size, (), Buffers()), *_inside(variable, size, stop, part, asked.objects)]
    total, exact = sum(size.bytes for size in wholes), all(size.exact for size in wholes)
    return Variables(rows=told, unique=total, total=total, exact=exact), spent.seconds()


def _inside(
    parent: Variable, whole: Size, stop: Sequence[Any], seconds: float | None, objects: int | None
) -> Iterator[VariableRow]:
    inside, count = children(parent.value)
    inside.sort(key=lambda child: -_weight_alone(child.value))
    budget = Budget(seconds, objects)  # starts after the children are listed, so that some of them can be measured
    snapshot = Snapshot(stop=stop)
    sizes: list[Size] = []
    #: The children that are variables of the snapshot, by its numbers.
    walked: list[int] = []
    small: dict[int, int] = {}
    for child in inside:
        if sizes and budget.ended():
            break
        alone = _weight_alone(child.value)
        if alone < SHARED and id(type(child.value)) in _ATOMS:  # a walk would take much longer
            small[id(child.value)] = alone
            sizes.append(Size(alone, 1))
        else:
            walked.append(len(sizes))
            sizes.append(snapshot.measure(child.value, budget.part(_EACH)))
    for number in snapshot.unfinished():
        sizes[walked[number]] = snapshot.go_on(number, budget.part(1.0))
    sharers = dict(zip(walked, snapshot.sharers(SHARED), strict=True))
    order = sorted(range(len(sizes)), key=lambda number: -sizes[number].likely)
    buffers = Buffers()
    for number in order[:_MOST_ROWS]:
        others = [inside[walked[other]].of(parent) for other in sharers.get(number, ())]
        yield row_of(inside[number].of(parent), sizes[number], others, buffers)
    rest, unmeasured = [sizes[number] for number in order[_MOST_ROWS:]], count - len(sizes)
    own = whole.bytes - snapshot.unique() - sum(small.values())
    if rest or unmeasured > 0:
        exact = not unmeasured and all(size.exact for size in rest)
        told = sum(sizes[number].likely for number in order[:_MOST_ROWS])
        estimate = None if exact else max(0, whole.likely - told)
        size = Size(sum(size.bytes for size in rest), 0, exact, estimate, "" if exact else BUDGET, _devices(rest))
        yield _beside(parent, "rest", f"{parent.where} ({len(rest) + unmeasured} more)", "", size)
    elif inside and whole.exact and all(size.exact for size in sizes) and own >= SHARED:
        yield _beside(parent, "itself", f"{parent.where} (itself)", type_name(parent.value), Size(own, 1))


def _devices(sizes: Iterable[Size]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for size in sizes:
        found.update(size.devices)
    return found


def _weight_alone(value: Any) -> int:
    """Return the bytes of a value without its referents; a guess if user code would be run to find them."""
    return getsizeof(value) if id(type(value)) in _PLAIN else _UNKNOWN


def _beside(parent: Variable, kind: str, where: str, name: str, size: Size) -> VariableRow:
    """Return the row of a part that is not a variable."""
    row = row_of(Variable(parent.actor, kind, where, None), size, (), Buffers())
    return msgspec.structs.replace(row, type=name)
