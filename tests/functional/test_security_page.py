"""What docs/security.md says of the files of a program, held against a program that runs."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from meshrt import proc_mesh, put, this_proc
from meshrt.transport.tools import own_program
from tests.support.holders import Holder
from tests.support.programs import ROOT

WAIT = 60
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


def kinds(directory: Path) -> set[str]:
    """The names of what is in a directory, as the page writes them."""
    names = [re.sub(r"^[0-9a-f]{8}\.\d+$", "MESH.RANK", name) for name in os.listdir(directory)]
    names = [re.sub(r"^.+-[0-9a-f]{8}\.\d+\.log$", "*.log", name) for name in names]
    return {re.sub(r"^store\.\d+$", "store.PID", name) for name in names} - {".lock"}


@pytest.fixture
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_the_directories_of_a_program() -> None:
    proc_mesh(n=2).spawn("holder", Holder).get(WAIT)
    this_proc().spawn("own", Holder).get(WAIT)
    reference = put(np.ones(1 << 18))
    program = own_program()
    assert program is not None
    for directory in (program.directory, program.run_directory):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        files = [path.lstat() for path in directory.iterdir()]
        assert files and {stat.S_IMODE(facts.st_mode) for facts in files} == {0o600}
    found = kinds(program.directory)
    assert found == {"MESH.RANK", "store.PID", "tools", "root", "tools.token", "program.json"}
    found |= kinds(program.run_directory)
    assert [name for name in found if f"`{name}`" not in PAGE] == []
    del reference
