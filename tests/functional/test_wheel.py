"""A wheel of this checkout in an environment of its own: what is advised there, and whether it works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.programs import ROOT, environment, project

__all__: list[str] = []

_LOADS = "from meshrt.debug.dap.engine.loading import load; load()"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without what makes the checkout importable."""
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=900, check=False)
    print(*command, done.stdout, done.stderr, sep="\n")
    return done


def advised(done: subprocess.CompletedProcess[str]) -> str:
    """Return the command at the end of what was said."""
    assert done.returncode, done
    return done.stderr.strip().partition("; to install it: ")[2]


@pytest.mark.nightly
def test_the_advice_of_an_installed_meshrt_works(tmp_path: Path) -> None:
    pip = (sys.executable, "-m", "pip")
    if run(*pip, "download", "-q", "--no-deps", "-d", str(tmp_path / "tool"), "hatchling", cwd=tmp_path).returncode:
        pytest.skip("no package index can be reached")
    assert run(*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT), cwd=tmp_path).returncode == 0
    (wheel,) = tmp_path.glob("*.whl")
    name = project()["name"]
    assert wheel.name.startswith(f"{name}-")
    with ZipFile(wheel) as content:
        assert {entry.partition("/")[0].partition("-")[0] for entry in content.namelist()} == {"meshrt", name}

    python = tmp_path / "env" / "bin" / "python"
    assert run(sys.executable, "-m", "venv", str(tmp_path / "env"), cwd=tmp_path).returncode == 0
    assert run(str(python), "-m", "pip", "install", "-q", str(wheel), cwd=tmp_path).returncode == 0
    command = str(python.with_name("meshrt"))
    asks = "from meshrt.show.installing import distribution; print(distribution().name)"
    assert run(str(python), "-c", asks, cwd=tmp_path).stdout == f"{name}\n"

    # As it is shown, by a shell.
    how = advised(run(str(python), "-c", _LOADS, cwd=tmp_path))
    assert how in run(command, "dap", "--help", cwd=tmp_path).stdout and str(python) in how
    assert run("sh", "-c", how, cwd=tmp_path).returncode == 0
    assert run(str(python), "-c", _LOADS, cwd=tmp_path).returncode == 0

    # An environment without pip, as uv makes them.
    assert run(str(python), "-m", "pip", "uninstall", "-q", "-y", "pip", cwd=tmp_path).returncode == 0
    how = advised(run(command, "top", cwd=tmp_path))
    assert run("sh", "-c", how, cwd=tmp_path).returncode == 0
    assert "the screen needs a terminal" in run(command, "top", cwd=tmp_path).stderr
