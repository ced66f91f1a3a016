"""Actors defined in a notebook cell: they run, and the debugger shows their source."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

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
