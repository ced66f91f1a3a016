"""How programs are shown to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshrt.inspect import programs as module
from meshrt.inspect.programs import NoProgram, choose, command_of
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


def test_a_program_that_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Program] = []
    monkeypatch.setattr(module, "programs", lambda: found)
    with pytest.raises(NoProgram) as caught:
        choose("99999", how="-p RUN")
    assert str(caught.value) == "PID 99999 is not a meshrt program; none is running"
    found.append(Program("abcd1234", 7, ["python", "train.py"], "/", 0.0, Path(), Path()))
    with pytest.raises(NoProgram, match=r"^'trainer' is not a meshrt program; name one by its id or its pid: pid 7: "):
        choose("trainer", how="-p RUN")
    with pytest.raises(NoProgram, match=r"^PID 3 is not a meshrt program \(to select a rank: --ranks 3\); name one by"):
        choose("3", how="-p RUN", ranks=True)
