"""Actors defined in a notebook cell: they run, and the debugger shows their source."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python

needed = ("ipykernel", "jupyter_client")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
SCRIPT = Path(__file__).parents[1] / "support" / "notebook.py"


@pytest.mark.slow
@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (pip install --group notebook)")
def test_a_cell_can_be_debugged() -> None:
    ran = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=110)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert "[0-1]" in found["debugger"] and "->\t        breakpoint()" in found["debugger"]
    assert "[0] 0\n[1] 2" in found["debugger"]
    assert found["values"] == "[0, 2]"
    # The cell that has called, then meshrt's text with the line of the cell that has raised; nothing of meshrt between.
    assert "cells.fail.call().get()" in found["shown"] and '\n    raise ValueError("no")\n' in found["shown"]
    assert "/meshrt/" not in found["shown"]


#: Each line is an error of the user, after a program has begun.
TYPED = """
import meshrt

class Job(meshrt.Actor):
    @meshrt.endpoint
    def fail(self, loss):
        raise ValueError(f"loss is {loss}")

jobs = meshrt.proc_mesh(n=2).spawn("job", Job)
def train():
    jobs.fail.call(3).get(20)

train()
jobs.fail.call()
jobs.slice(hosts=1)
meshrt.proc_mesh(n=-1)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("IPython") is None, reason="not installed: IPython (pip install --group notebook)"
)
def test_ipython_shows_no_frames_of_meshrt(tmp_path: Path) -> None:
    ran = run_python(
        *("-m", "IPython", "--simple-prompt", "--colors=NoColor", "--no-banner"),
        input=TYPED,
        cwd=tmp_path,
        env=environment(IPYTHONDIR=str(tmp_path)),
    )
    errors = ran.stdout.split("Traceback (most recent call last)\n")[1:]
    assert len(errors) == 4 and "meshrt/" not in ran.stdout.replace("\n", "")
    for error, line, kind in zip(
        errors,
        ("train()", "jobs.fail.call()", "jobs.slice(hosts=1)", "meshrt.proc_mesh(n=-1)"),
        ("ActorError", "TypeError", "TypeError", "UsageError"),
        strict=True,
    ):
        assert f"----> 1 {line}\n" in error and f"\n{kind}: " in error
    assert (
        "----> 2     jobs.fail.call(3).get(20)\n" in errors[0]
        and '\n    raise ValueError(f"loss is {loss}")' in errors[0]
    )
