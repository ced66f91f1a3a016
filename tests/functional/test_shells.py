"""The scripts of ``meshrt completion`` in the shells that they are for, at a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyte", reason="pyte is not installed (pip install --group test)")

from tests.support.emulator import SECONDS, Emulator, emulated
from tests.support.programs import another_program, environment, run_python
from tests.support.waiting import holds_within

PROGRAM = """
import os
os.environ["MESHRT_DEBUG_AUTO"] = "0"
from meshrt import Actor, endpoint, proc_mesh
class Job(Actor):
    @endpoint
    def step(self):
        breakpoint()
answer = proc_mesh(n=12).spawn("job", Job).step.call()
"""
#: How each is started without a person's settings, what loads its script, and the keys that show what may follow.
SHELLS = {
    "bash": ("bash --norc --noprofile -i", 'eval "$(meshrt completion bash)"', "\t\t"),
    "zsh": ("zsh -f -i", 'autoload -Uz compinit; compinit -D; eval "$(meshrt completion zsh)"', "\t"),
    "fish": ("fish -i", "meshrt completion fish | source", "\t"),
}
CLEAR = "\x15"


@pytest.fixture(params=[pytest.param(name, id=name) for name in SHELLS])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Emulator, str]]:
    """A shell in a folder with one file, which has the script; and the keys that list what may follow."""
    command, loads, keys = SHELLS[request.param]
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    (tmp_path / "bin").mkdir()
    meshrt = tmp_path / "bin" / "meshrt"
    meshrt.write_text(f'#!/bin/sh\nexec {sys.executable} -m meshrt "$@"\n')
    meshrt.chmod(0o755)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "the_only_file").touch()
    path = f"{meshrt.parent}:{environment()['PATH']}"
    with emulated(command.split(), columns=120, PATH=path, HOME=str(tmp_path)) as me:
        me.types(f"cd {tmp_path}/here; {loads}; echo lo''aded\r")
        me.sees("\nloaded")
        me.settles()
        yield me, keys


@pytest.mark.slow
def test_a_shell_completes_commands_and_files(shell: tuple[Emulator, str]) -> None:
    me, _ = shell
    me.types("meshrt postm\t")
    me.sees("meshrt postmortem")
    me.types(f"{CLEAR}meshrt timeline the_\t")
    me.sees("meshrt timeline the_only_file")


@pytest.mark.slow
def test_a_shell_lists_ranks_in_numerical_order(shell: tuple[Emulator, str]) -> None:
    me, keys = shell
    with another_program(PROGRAM):
        assert run_python("-m", "meshrt", "wait", "job").returncode == 0
        me.types(f"meshrt attach job {keys}")
        assert holds_within(SECONDS, lambda: len(listed(me)) == 12), me.shown
        assert listed(me) == [str(rank) for rank in range(12)]


def listed(me: Emulator) -> list[str]:
    """Return the numbers on the screen, in their order: columns are read from top to bottom."""
    me.settles()
    rows = [line.split() for line in me.shown.splitlines()]
    numbers = [row for row in rows if row and all(word.isdigit() for word in row)]
    return [row[column] for column in range(max(map(len, numbers), default=0)) for row in numbers if column < len(row)]
