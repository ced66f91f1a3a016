"""How programs are shown to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshrt.inspect.programs import command_of
from meshrt.transport.tools import Program


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["/usr/bin/python3", "train.py", "--lr", "3e-4"], "python3 train.py --lr 3e-4"),
        (["/v/bin/python", "/v/bin/meshrt", "run", "-n", "4", "train.py"], "meshrt run -n 4 train.py"),
        (["/v/bin/python", "-m", "meshrt", "run", "train.py"], "meshrt run train.py"),
        (["/v/bin/python", "-c", "x = 1\n\nmeshrt"], "python -c 'x = 1 meshrt'"),
        (["python", "my meshrt"], "python 'my meshrt'"),
        (["python"], "python"),
    ],
)
def test_the_command_of_a_program(argv: list[str], shown: str) -> None:
    assert command_of(Program("1", 1, argv, "/", 0.0, Path(), Path())) == shown
