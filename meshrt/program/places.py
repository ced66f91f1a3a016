"""Lines of code, and which of them a person means."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

__all__ = ["NOWHERE", "Place", "names_file"]


@dataclass(frozen=True, slots=True)
class Place:
    """A line of code; ``line`` is 0 where it is not known."""

    file: str = ""
    line: int = 0
    function: str = ""

    @property
    def module(self) -> str:
        """The file's name without folder and suffix."""
        name = self.file.rpartition("/")[2]
        return name.removesuffix(".py")

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}:{self.line} ({self.function})"

    def to_wire(self) -> list[Any]:
        """Return a form that msgpack can carry."""
        return [self.file, self.line, self.function]

    @classmethod
    def from_wire(cls, wire: Any) -> Place:
        """Return the place that `to_wire` wrote."""
        return cls(str(wire[0]), int(wire[1]), str(wire[2])) if wire else cls()


NOWHERE = Place()
"""The place that is not known."""


def names_file(wanted: str, filename: str) -> bool:
    """Whether a person who writes ``wanted`` (``train.py``, ``pkg/train.py``, a whole path) means ``filename``."""
    wanted = wanted.removeprefix("./")
    if os.path.isabs(wanted):
        return filename == wanted or os.path.realpath(filename) == os.path.realpath(wanted)
    return filename == wanted or filename.endswith("/" + wanted)
