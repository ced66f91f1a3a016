"""The examples run as they stand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.footprint import marked_processes
from tests.support.programs import ROOT, run_python
from tests.support.waiting import wait_until

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
def test_the_demo_plays_the_session_and_the_program_ends_well(tmp_path: Path) -> None:
    done = run_python(str(ROOT / "examples" / "demo.py"), cwd=tmp_path, seconds=110)
    assert done.returncode == 0
    for shown in ("meshrt_dbg> ", "attached to debugee 13", "[0-7] 0", "[8-15] 1", "ValueMesh{hosts=4,gpus=4}:"):
        assert shown in done.stdout
    wait_until(lambda: not marked_processes(), 5, "every process of the demo has ended")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_use_the_public_names_only(path: Path) -> None:
    imported = [
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("meshrt")
    ]
    assert set(imported) <= {"meshrt"}
