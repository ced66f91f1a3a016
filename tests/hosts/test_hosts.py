"""Tests of one machine can be run on two hosts: their ranks are there, and the table of those that cannot is true."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.cluster.machines import why_not
from tests.conftest import HERE
from tests.hosts.one_machine import ONE_MACHINE
from tests.support.programs import ROOT

_WHY_NOT = why_not()


@pytest.mark.parametrize("entry", ONE_MACHINE)
def test_what_the_table_excludes_is_there(entry: str) -> None:
    file, _, function = entry.partition("::")
    assert file.startswith(("functional/", "faults/")), "no other tests are run on two hosts"
    assert not function or file not in ONE_MACHINE, "the whole file is excluded already"
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    tests = {name for name in names if name.startswith("test")}
    assert tests if not function else function in tests, "this entry excludes no test"


def _pytest(*words: str, seconds: float = 110) -> str:
    command = [sys.executable, "-m", "tests.hosts", "-n", "0", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.nightly
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
def test_ranks_are_on_two_hosts() -> None:
    assert "3 passed" in _pytest("tests/hosts/sample.py")


@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
def test_what_is_excluded_is_printed_with_its_reason() -> None:
    entry, reason = next(iter(ONE_MACHINE.items()))
    said = _pytest(f"tests/{entry}")
    assert "passed" not in said
    assert f"one machine: {reason}" in said


@pytest.mark.nightly
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.timeout(1900)
def test_system_calls_fail_with_ranks_on_two_hosts() -> None:
    words = ("tests/faults/test_failing_calls.py", "-m", "slow", "-k", "test_a_call_fails and not while")
    assert "3 passed" in _pytest(*words, seconds=1800)


@pytest.mark.nightly
@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT)
@pytest.mark.timeout(3900)
def test_all_functional_and_fault_tests_on_two_hosts() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.hosts", "-n", "4", "--dist", "worksteal"], cwd=ROOT, check=False
    )
    assert done.returncode == 0, "the tests above fail on two hosts"
