"""docs/programs.md shows what the two programs of the examples print."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.programs import ROOT, environment, run_python

PAGE = (ROOT / "docs" / "programs.md").read_text(encoding="utf-8")
NOTEBOOK = (ROOT / "examples" / "notebook.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_notebook_prints_what_the_page_shows_and_the_job_ends() -> None:
    command = [sys.executable, str(ROOT / "examples" / "job.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()) as job:
        assert job.stdout is not None and job.stdout.readline() == "training\n"
        done = run_python(str(ROOT / "examples" / "notebook.py"))
        assert done.stderr == "" and done.returncode == 0
        printed, errors = job.communicate(timeout=30)
    assert printed.startswith("finished with a loss of 0.0") and errors == "" and job.returncode == 0
    assert f"$ python examples/notebook.py\n{done.stdout}```" in PAGE


def test_the_code_on_the_page_is_that_of_the_example() -> None:
    _, _, block = PAGE.partition("```\nwith meshrt.connect()")
    lines = [line for line in block.partition("```")[0].splitlines()[1:] if line]
    assert lines and [line for line in lines if line not in NOTEBOOK.splitlines()] == []
