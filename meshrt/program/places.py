"""Lines of code, and which of them a user means."""

from __future__ import annotations

import os

from meshrt.hooks.operations import Data

__all__ = ["NOWHERE", "Place", "names_file"]


class Place(Data, frozen=True, array_like=True):
    """A line of code; ``line`` is 0 if it is not known."""

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


NOWHERE = Place()
"""An unknown place."""


def names_file(wanted: str, filename: str) -> bool:
    """Whether ``wanted``, as the user writes it, is ``filename``.

    Args:
        wanted: A name (``train.py``), the end of a path (``pkg/train.py``) or an absolute path.
    """
    wanted = wanted.removeprefix("./")
    if os.path.isabs(wanted):
        return filename == wanted or os.path.realpath(filename) == os.path.realpath(wanted)
    return filename == wanted or filename.endswith("/" + wanted)
