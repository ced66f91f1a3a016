"""The environment and the command of a program that a process starts as it joins."""

from __future__ import annotations

import pytest

from meshrt.spmd.parts import JOB_PROGRAM, JobSpec
from meshrt.spmd.starting import Starting

SPEC = JobSpec("/tmp/meet", {"n": 1}, [], "main", "attach", 0, 1, 7, "main")


def test_the_python_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is meant for this process's Python is not for that one; everything else is handed down."""
    monkeypatch.setenv("PYTHONHOME", "/x")
    monkeypatch.setenv("SHARED", "yes")
    starting = Starting(SPEC, ["/other/python", "-u"], {"MESHRT_RUNTIME_DIR": "/base"})
    assert starting._command == ["/other/python", "-u", str(JOB_PROGRAM)]
    environment = starting._environment()
    assert (environment["SHARED"], environment["MESHRT_RUNTIME_DIR"]) == ("yes", "/base")
    assert "PYTHONHOME" not in environment
    assert Starting(SPEC)._environment()["PYTHONHOME"] == "/x"
