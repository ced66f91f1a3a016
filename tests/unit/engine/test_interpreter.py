"""Which interpreters can run ranks of a script, and what is said of others."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from pathlib import Path

import pytest

from meshrt.engine.interpreter import SCRIPT_PYTHON, unfit, why_ended


def test_another_minor_version_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    own = platform.python_version()
    for version in (own, f"{own.rpartition('.')[0]}.99"):
        monkeypatch.setenv(SCRIPT_PYTHON, version)
        assert unfit() == ""
    assert SCRIPT_PYTHON not in os.environ and unfit() == ""
    monkeypatch.setenv(SCRIPT_PYTHON, "3.5.2")
    assert f"Python {own} ({sys.executable}), the script Python 3.5.2; expected the same minor version" in unfit()
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "msgspec" else found(name))
    assert unfit().endswith(f"({sys.executable}), which has no package msgspec; meshrt needs it")


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (127, "env: '/opt/python': No such file or directory", "host n1 has no interpreter /opt/python; python= names"),
        (
            1,
            "/opt/python: ... (ModuleNotFoundError: No module named 'meshrt')",
            "host n1 has no meshrt: not at /a/meshrt, and not",
        ),
        (1, "host n1 runs Python 3.9.1 (/opt/python), ...", "host n1 runs Python 3.9.1"),
        (127, "sh: nsenter: not found", "the agent of host n1 has ended before it joined, with exit status 127: sh"),
        (255, "", "the agent of host n1 has ended before it joined, with exit status 255"),
    ],
)
def test_why_an_agent_has_ended(status: int, said: str, expected: str) -> None:
    assert why_ended("n1", "/opt/python", Path("/a/meshrt/engine/x.py"), status, said).startswith(expected)
