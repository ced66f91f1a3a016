"""Local variables of a stack frame as text, for values of any kind."""

from __future__ import annotations

import reprlib
from collections.abc import Container, Iterator, Mapping
from types import FrameType

from meshrt.hooks.facts import Variable
from meshrt.inspect.capping import cap
from meshrt.inspect.values import class_name, describe, is_array, module_name, safe_text, stored

__all__ = ["Variables", "attributes", "local_variables"]

#: Most characters of one value.
_VALUE_MAX = 2000
_MOST_ATTRIBUTES = 100


def local_variables(actor: str, frame: FrameType, line: int, names: Mapping[str, object]) -> Iterator[Variable]:
    """Iterate over the local variables of a stack frame of an actor, in the form of the memory view.

    Args:
        line: The line that the frame is at.
        names: The variables and their values.
    """
    code = frame.f_code
    place = f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}()"
    for name, value in list(names.items()):
        yield Variable(actor, "local", f"{place} {name}", value)


class Variables(reprlib.Repr):
    """Texts of local variables: bounded in depth and length, each and in total.

    Args:
        total: Most characters of all texts together.
    """

    def __init__(self, total: int) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxstring = self.maxlong = self.maxother = 400
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = self.maxarray = 20
        self.maxdict = 20
        self._left = total

    def of(self, frame: FrameType, hidden: Container[str] = (), first: Container[str] = ()) -> dict[str, str]:
        """Return the texts of the local variables of ``frame`` by name: ``first``, others, attributes of objects.

        Args:
            hidden: Names that are listed without their values.
            first: Names to begin with, also of attributes (``"self.store"``).
        """
        variables = {str(name): value for name, value in list(frame.f_locals.items())}
        inside = {
            f"{name}.{attribute}": inner
            for name, value in variables.items()
            if name not in hidden and self.opens(value)
            for attribute, inner in attributes(value)[:_MOST_ATTRIBUTES]
        }
        found = variables | inside
        texts: dict[str, str] = {}
        # The least important names come last: they are left out if the total is reached.
        for name in sorted(found, key=lambda name: (name not in first, name in inside)):
            if name in hidden:
                texts[name] = ""
            else:
                self._add(texts, name, found[name])
        return texts

    def opens(self, value: object) -> bool:
        """Whether the attributes of an object are listed as well: its default repr says nothing."""
        return stored(type(value), "__repr__") is object.__repr__

    def _add(self, texts: dict[str, str], name: str, value: object) -> None:
        if self._left <= 0:
            texts["..."] = "more was left out"
            return
        texts[name] = self._text(value)
        self._left -= len(texts[name])

    def _text(self, value: object) -> str:
        try:
            return cap(self.repr(value), _VALUE_MAX)
        except BaseException as error:  # a failing __repr__ must not change what the program raised
            return f"*** {class_name(value)}.__repr__ raised {class_name(error)}"

    def repr1(self, x: object, level: int) -> str:
        """Return the text of ``x``; only built-in containers are iterated over."""
        # reprlib goes by the name of the class: a user's own class `list` must not be iterated over.
        if is_array(x):
            return describe(x)[0]
        if module_name(type(x)) not in ("builtins", "collections", "array"):
            return self.repr_instance(x, level)
        return super().repr1(x, level)

    def repr_instance(self, x: object, level: int) -> str:
        """Return the capped text of ``x``, or which exception its ``__repr__`` raised."""
        return cap(safe_text(x), self.maxother)


def attributes(value: object) -> list[tuple[str, object]]:
    """Return the instance variables of ``value``, bypassing ``__getattribute__`` of its class."""
    try:
        found = object.__getattribute__(value, "__dict__")
        return [(str(name), inner) for name, inner in list(found.items())]
    except BaseException:
        return []  # slots, or a property of that name
