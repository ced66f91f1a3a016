"""mypy and pyright on files with expected errors, on what the documentation shows, and on the public names.

Each runs once for all files.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt import testing
from tests.support.programs import ROOT, environment
from tests.test_docs import blocks_of

__all__: list[str] = []

CASES = sorted((ROOT / "tests" / "types" / "cases").glob("*.py"))
#: Pages that show messages of pyright; and pages, and examples, in which no checker finds anything.
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]
CLEAN = [ROOT / "docs" / f"{name}.md" for name in ("calls", "ports", "programs", "supervision", "testing")]
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").glob("*.py")
    if importlib.util.find_spec("torch") is not None or "import torch" not in path.read_text("utf-8")
)
#: What ``# error`` may be followed by: the only checker that reports it.
MARK = re.compile(r"# error(?:: (?P<only>\w+))?$")
#: pyright counts a class that fits every parameter as unknown, which it is on purpose.
FITS_ALL = {"meshrt.ObjectRef", "meshrt.store.refs.ObjectRef", "meshrt.put", "meshrt.store.put.put"}

needs_pyright = pytest.mark.skipif(
    importlib.util.find_spec("pyright") is None, reason="not installed: pyright (pip install --group types)"
)
needs_mypy = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None, reason="not installed: mypy (pip install --group dev)"
)

Found = dict[tuple[str, int], str]
#: Lines of code of a page with what pyright says to them: ``CODE  # MESSAGE``.
SAID = re.compile(r"(?P<code>.*\S) +# (?P<message>(?:Argument|Cannot|Object|Type of) .*)")


@functools.cache
def shown() -> tuple[Path, ...]:
    """Return the Python blocks of each page as a program, with the lines that the page shows messages for."""
    folder = Path(tempfile.mkdtemp(prefix="meshrt-types-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return tuple(_program(page, folder / f"{page.stem}_page.py") for page in (*PAGES, *CLEAN))


def checked() -> tuple[Path, ...]:
    """Return all files that are checked."""
    return (*CASES, *shown(), *EXAMPLES)


def _program(page: Path, path: Path) -> Path:
    blocks = blocks_of(page.read_text("utf-8"))
    lines = [line for block in blocks if block.language != "python" for line in block.text.splitlines()]
    said = [line for line in lines if SAID.fullmatch(line)]
    assert bool(said) is (page in PAGES)
    code = "\n".join(block.text for block in blocks if block.language == "python")
    path.write_text(f"from typing import reveal_type\n{code}\n" + "\n".join(said), "utf-8")
    return path


def run(*arguments: str) -> str:
    """Run a checker as a module of this Python, and return what it printed; it finds what this Python finds."""
    env = environment(PYTHONPATH=os.pathsep.join([str(ROOT), *filter(None, sys.path)]))
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def mypy() -> Found:
    """Return the errors of mypy by file and line."""
    lines = run("mypy", "--output", "json", "--no-error-summary", *map(str, checked())).splitlines()
    errors = [json.loads(line) for line in lines]
    return {(Path(each["file"]).name, each["line"]): each["message"] for each in errors if each["severity"] == "error"}


def pyright() -> Found:
    """Return the errors of pyright by file and line."""
    document = json.loads(run("pyright", "--pythonpath", sys.executable, "--outputjson", *map(str, checked())))
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1): each["message"]
        for each in document["generalDiagnostics"]
    }


@pytest.mark.slow
@needs_mypy
@pytest.mark.timeout(320)
def test_mypy() -> None:
    found = mypy()
    compare_marks(found, "mypy")
    expect_none(found)
    for path in shown():
        lines = path.read_text("utf-8").splitlines()
        wrong = [number for number, line in enumerate(lines, 1) if SAID.fullmatch(line) and "reveal_type" not in line]
        here = {line: message for (name, line), message in found.items() if name == path.name}
        assert sorted(here) == wrong, here


@pytest.mark.slow
@needs_pyright
@pytest.mark.timeout(320)
def test_pyright() -> None:
    found = pyright()
    compare_marks(found, "pyright")
    expect_none(found)
    for path in shown():
        said = {
            number: match["message"]
            for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
            if (match := SAID.fullmatch(line))
        }
        here = {line: message for (name, line), message in found.items() if name == path.name}
        assert here.keys() == said.keys(), here
        assert [here[line] for line in said if not here[line].startswith(said[line])] == []


def expect_none(found: Found) -> None:
    """There is no error in examples."""
    names = {path.name for path in EXAMPLES}
    wrong = [f"{name}:{line}: {message}" for (name, line), message in found.items() if name in names]
    if wrong:
        pytest.fail("\n".join(["", *sorted(wrong)]), pytrace=False)


def compare_marks(found: Found, checker: str) -> None:
    """Compare the errors of a checker with the marks in the files: one run, as each worker would run it for itself."""
    wrong = []
    for path in CASES:
        here = {line: message for (name, line), message in found.items() if name == path.name}
        marks = {number: MARK.search(line) for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)}
        expected = {number for number, mark in marks.items() if mark is not None and mark["only"] in (None, checker)}
        assert expected
        wrong += [f"{path.name}:{line}: no error" for line in sorted(expected - here.keys())]
        wrong += [f"{path.name}:{line}: {here[line]}" for line in sorted(here.keys() - expected)]
    if wrong:
        pytest.fail("\n".join(["", *wrong]), pytrace=False)


@pytest.mark.slow
@needs_pyright
@pytest.mark.timeout(320)
def test_public_names_have_known_types() -> None:
    document = json.loads(
        run("pyright", "--pythonpath", sys.executable, "--verifytypes", "meshrt", "--ignoreexternal", "--outputjson")
    )
    modules = (meshrt, testing)
    defined = {_defined(module, name) for module in modules for name in module.__all__}
    public = {f"{module.__name__}.{name}" for module in modules for name in module.__all__} | defined
    symbols: dict[str, dict[str, Any]] = {each["name"]: each for each in document["typeCompleteness"]["symbols"]}
    known = {name: each for name, each in symbols.items() if name in public or name.rpartition(".")[0] in defined}
    assert public <= known.keys()
    unknown = [
        "\n  ".join([name, *(problem["message"].replace("\n", " ") for problem in each["diagnostics"])])
        for name, each in sorted(known.items())
        if (not each["isTypeKnown"] or each["isTypeAmbiguous"]) != (name in FITS_ALL)
    ]
    if unknown:
        pytest.fail("\n".join(["", *unknown]), pytrace=False)


def _defined(module: types.ModuleType, name: str) -> str:
    """Return a public name as it is called where it is defined."""
    value = getattr(module, name)
    if isinstance(value, types.ModuleType):  # `meshrt.memory`, which is called
        return f"{value.__name__}.api.{name}"
    return f"{value.__module__}.{value.__qualname__}"
