"""The examples run as they stand."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.support import notebooks
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


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("nbclient") is None, reason="nbclient is not installed (pip install --group notebook)"
)
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(path: Path) -> None:
    ran, stored = notebooks.run(path)["cells"], notebooks.stored(path)["cells"]
    assert [_told_apart(cell) for cell in ran] == [_told_apart(cell) for cell in stored]


def _told_apart(cell: dict[str, Any]) -> tuple[list[str], list[str]]:
    """What a cell prints, and what meshrt announces beside it, at any time."""
    lines = notebooks.shown_by(cell).splitlines()
    announced = [line for line in lines if line.startswith("meshrt: ")]
    return [line for line in lines if line not in announced], announced


def test_a_notebook_can_be_read_as_a_page() -> None:
    page = notebooks.as_page(notebooks.stored(notebooks.NOTEBOOKS[0]))
    assert page.startswith("# Find a hang\n") and "\n```bash\n!meshrt where\n```\n\n```text\n8 ranks of mesh1\n" in page


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_use_the_public_names_only(path: Path) -> None:
    imported = [
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("meshrt")
    ]
    assert set(imported) <= {"meshrt"}
