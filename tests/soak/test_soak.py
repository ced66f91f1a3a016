"""The soak as a test: an hour of faults. `make soak` runs ten minutes of it and shows the table while one waits."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.programs import ROOT


@pytest.mark.nightly
@pytest.mark.timeout(3900)
@pytest.mark.row("L3")
def test_an_hour_of_faults() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.soak", "--minutes", "60"], cwd=ROOT, check=False)
    assert done.returncode == 0, "the table above names what was found, and the seed"
