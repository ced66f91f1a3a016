"""For `make docs`: docstrings as its reader wants them, with a blank line between their sections."""

from __future__ import annotations

import re
from typing import Any

try:
    from griffe import Extension
except ImportError:  # in the environment of the tests, which look at the function below
    Extension = object

__all__ = ["Sections", "apart"]

_SECTION = re.compile(r"(?<=[^\n])\n(?=(?:Args|Attributes|Raises|Returns|Source|Yields):)")


def apart(docstring: str) -> str:
    """Return a docstring with a blank line in front of each section."""
    return _SECTION.sub("\n\n", docstring)


class Sections(Extension):
    """Changes each docstring when it has been read."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Change the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = apart(obj.docstring.value)
