"""A program may run for months: no table of it grows with the meshes that it has made, nor with their failures."""

from __future__ import annotations

import pytest

from tests.support.programs import ROOT, environment, run_python


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_table_grows_with_what_has_ended() -> None:
    done = run_python("-m", "tests.faults.long_program", cwd=ROOT, seconds=240, env=environment(MESHRT_LOGS="off"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
