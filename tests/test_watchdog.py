"""A test that fails, and then never ends, does not hold up the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.programs import ROOT

HANGS = """\
import threading
import pytest

@pytest.fixture
def held():
    yield
    threading.Event().wait()

def test_fails(held):
    assert False
"""


def test_the_teardown_of_a_failed_test_is_watched(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 1\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.watchdog", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "Timeout" in done.stderr and "in held" in done.stderr, done
