"""What is inside a variable, one level down: attributes of an object, items of a dict, elements of a list or a set.

Names are those that rows show, so that each item can be opened in turn: ``self.cache`` has ``self.cache['train']``, and
that may have ``self.cache['train'].data``. No user code is run: no ``__repr__``, no ``__iter__``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from gc import get_referents
from itertools import chain, islice
from types import ModuleType
from typing import Any, NamedTuple

from meshrt.hooks.facts import Variable
from meshrt.inspect.values import bases, is_array
from meshrt.inspect.variables import attributes
from meshrt.memory.kinds import ATOMS
from meshrt.memory.variables import slots, type_name
from meshrt.selection import near_miss

__all__ = ["MOST", "Child", "children", "find"]

#: Items of a variable that are looked at, at most.
MOST = 50_000
#: Characters of a key, or bits of a number, that a name shows.
_KEY = 60
_BITS = 64
#: Names that an error lists; and names that are searched for the one that was probably meant.
_NAMED = 10
_NEAR = 2000
#: Characters that follow the name of a variable in the name of something inside it.
_GOES_ON = (".", "[", "{", "<")
#: Classes by identity, as a metaclass may define ``==``. Elements of a set have no index: their value names them.
_PLACED = {id(cls): cls for cls in (list, tuple, deque)}
_UNPLACED = {id(cls): cls for cls in (set, frozenset)}
_ATOMS = frozenset(map(id, ATOMS))
_SHORT = frozenset(map(id, (bool, float, type(None))))
_TEXTS = frozenset(map(id, (str, bytes)))


def find(name: str, variables: Sequence[Variable]) -> list[Variable] | str:
    """Return the variables of this name (several actors may have one), or a text that says why there is none.

    Args:
        name: As a row shows it; the name of an actor and a dot may precede it.
    """
    found = _named(name, variables)
    if not found:
        actor = next((each.actor for each in variables if name.startswith(f"{each.actor}.")), None)
        if actor is not None:
            of_actor = [each for each in variables if each.actor == actor]
            name = name.removeprefix(f"{actor}.")
            found = _named(name, of_actor)
            if not found:
                return f"actor {actor!r} has no variable {name!r}{_instead(name, [each.where for each in of_actor])}"
    if not found:
        return f"no variable {name!r}{_instead(name, [each.where for each in variables])}"
    opened = []
    for variable in found:
        each = variable
        while each.where != name:
            inside = [child.of(each) for child in children(each.value)[0]]
            nearer = _named(name, inside)
            if not nearer:
                what = f"{each.where} ({type_name(each.value)})"
                if not inside:
                    return f"{what} cannot be opened: it contains no variables, and no {name!r}"
                return f"{what} contains no {name!r}{_instead(name, [child.where for child in inside])}"
            each = nearer[0]
        opened.append(each)
    return opened


def _named(name: str, variables: Iterable[Variable]) -> list[Variable]:
    """Return the variables with the longest name that ``name`` equals or begins with."""
    fit = [
        each
        for each in variables
        if name == each.where or (name.startswith(each.where) and name[len(each.where)] in _GOES_ON)
    ]
    longest = max((len(each.where) for each in fit), default=0)
    return [each for each in fit if len(each.where) == longest]


def _instead(name: str, known: Sequence[str]) -> str:
    """Return what was probably meant, and what there is."""
    names = list(dict.fromkeys(known))
    if not names:
        return "; there are no variables"
    own = next((each for each in names if each.endswith(f".{name.rpartition('.')[2]}")), "")
    near = f"; did you mean {own!r}?" if own else near_miss(name, names[:_NEAR])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{near or ';'} expected one of: {', '.join(names[:_NAMED])}{more}"


class Child(NamedTuple):
    """Something inside a variable: an attribute or a referent by its name, an item or an element by its key.

    The name is made on request: most items of a large container are never shown.
    """

    kind: str
    brackets: str
    key: Any
    number: int
    value: object

    def of(self, parent: Variable) -> Variable:
        """Return this child of ``parent`` as a variable."""
        if self.kind == "attribute":
            suffix = f".{self.key}"
        else:
            key = str(self.number) if self.key is None else _key(self.key[0], self.number)
            suffix = f"{self.brackets[0]}{key}{self.brackets[1]}"
        return Variable(parent.actor, self.kind, parent.where + suffix, self.value)


def children(value: Any) -> tuple[list[Child], int]:
    """Return what is inside a value, at most `MOST` children, and the total number."""
    found: list[Child] = []
    count = 0
    for base in bases(type(value)):
        if base is dict:
            # One C call, from the iterator to the last item: other threads may write to it meanwhile.
            items = list(islice(chain.from_iterable(map(dict.items, (value,))), MOST))
            found += [Child("item", "[]", (key,), index, each) for index, (key, each) in enumerate(items)]
            count += dict.__len__(value)
        elif id(base) in _PLACED or id(base) in _UNPLACED:
            iterate: Callable[[object], Iterator[object]] = vars(base)["__iter__"]
            elements = list(islice(chain.from_iterable(map(iterate, (value,))), MOST))
            if id(base) in _PLACED:
                found += [Child("element", "[]", None, index, each) for index, each in enumerate(elements)]
            else:
                found += [Child("element", "{}", (each,), index, each) for index, each in enumerate(elements)]
            count += vars(base)["__len__"](value)
    inner = [*attributes(value), *(each for each in slots(value) if not each[0].startswith("__"))]
    named = [Child("attribute", "", name, 0, each) for name, each in inner]
    if not found and not named and id(type(value)) not in _ATOMS and not is_array(value):
        referents = [each for each in get_referents(value) if not issubclass(type(each), type | ModuleType)]
        named = [Child("referent", "<>", None, index, each) for index, each in enumerate(referents)]
    return [*named, *found], count + len(named)


def _key(key: Any, index: int) -> str:
    """Return the text of a key in a name; a key that has no short text is named by its number as well."""
    cls = type(key)
    if id(cls) in _SHORT or (cls is int and key.bit_length() <= _BITS):
        return repr(key)
    if id(cls) in _TEXTS:
        return repr(key) if len(key) <= _KEY else f"{key[:_KEY]!r}... #{index}"
    if cls is tuple and len(key) <= _KEY // 10 and all(type(each) is not tuple for each in key):
        parts = [_key(each, index) for each in key]
        if not any(part.endswith(f"#{index}") for part in parts):
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return f"{type_name(key)} #{index}"
