"""Which line is told of what was put: one that the user wrote, if there is any."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from meshrt.files import RUNTIME_FILES, STDLIB_FILES
from meshrt.store.put import call_site

RUNTIME = RUNTIME_FILES + "actor/execute.py"
LIBRARY, POOL = "/venv/lib/site-packages/helper.py", STDLIB_FILES + "concurrent/futures/thread.py"
COMMAND = os.path.join(sys.prefix, "bin", "train")
MINE, MAIN = "/home/me/model.py", "/home/me/train.py"


def called_from(*files: str) -> str:
    """Return what is told where these call each other, the first one the next, on a stack of the runtime's."""
    call: Any = call_site
    for file in reversed((RUNTIME, *files, RUNTIME)):
        names = {"call": call}
        exec(compile("def run():\n    return call()\n", file, "exec"), names)
        call = names["run"]
    return str(call())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((MAIN, MINE), MINE),
        ((MAIN, MINE, LIBRARY, POOL), MINE),
        ((LIBRARY, POOL), POOL),
        ((COMMAND, LIBRARY), LIBRARY),
        ((MAIN, RUNTIME, LIBRARY), LIBRARY),
    ],
    ids=["the innermost", "below libraries", "no user's", "what an installed command calls", "not beyond the runtime"],
)
def test_the_users_innermost_line_is_told(files: tuple[str, ...], expected: str) -> None:
    assert called_from(*files) == f"{expected}:2"
