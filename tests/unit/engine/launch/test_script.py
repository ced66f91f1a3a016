"""A script is run as Python runs it: the same output, the same exit status, the same traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import environment, run_python

SCRIPT = """
import os, sys, pickle
import beside
class Thing: pass
print(sys.argv, __name__, __file__, __package__, __spec__ is None, sys.path[0], os.getpid() > 0)
print(pickle.loads(pickle.dumps(Thing())).__class__, sys.modules["__main__"].Thing is Thing, beside.VALUE)
what = sys.argv[1]
if what == "raise":
    raise ValueError("as asked")
if what == "exit":
    sys.exit(int(sys.argv[2]))
if what == "text":
    sys.exit("in words")
if what == "interrupt":
    raise KeyboardInterrupt
if what == "atexit":
    import atexit
    atexit.register(lambda: print("at exit", Thing))
"""
#: Runs words as `meshrt launch` does.
RUN = """
import sys
from meshrt.engine.launch.script import Script
sys.path.pop(0)
sys.exit(Script(sys.argv[1:]).run())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "beside.py").write_text("VALUE = 3")
    for name in ("script.py", "package/__main__.py", "package/inner.py", "package/beside.py"):
        if not (tmp_path / name).exists():
            (tmp_path / name).write_text(SCRIPT)
    (tmp_path / "package" / "beside.py").write_text("VALUE = 4")
    (tmp_path / "wrong.py").write_text("x = = 1")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"),
    [
        *(("script.py", what) for what in ("", "raise", "exit 7", "exit 0", "text", "interrupt", "atexit")),
        *(
            (words, what)
            for words in ("./package/inner.py", "-m package", "-m package.inner")
            for what in ("", "raise")
        ),
    ],
)
def test_as_python_does(folder: Path, words: str, what: str) -> None:
    given = [*words.split(), *(what or "nothing").split(), "-v"]
    theirs = run_python(*given, cwd=folder, env=environment())
    ours = run_python("-c", RUN, *given, cwd=folder, env=environment())
    assert ours.stdout == theirs.stdout and ours.stdout
    assert ours.returncode == (theirs.returncode if what != "interrupt" else 1)
    if words.startswith("-m"):  # Python shows frames of runpy there
        assert ours.stderr.splitlines()[-2:] == theirs.stderr.splitlines()[-2:] and "runpy" not in ours.stderr
    else:
        assert ours.stderr == theirs.stderr


def test_syntax_errors_and_scripts_that_are_not_there(folder: Path) -> None:
    theirs, ours = (run_python(*words, "wrong.py", cwd=folder, env=environment()) for words in ((), ("-c", RUN)))
    assert (ours.returncode, ours.stderr) == (theirs.returncode, theirs.stderr)
    for words, why in (
        (["nowhere.py"], "there is no script nowhere.py"),
        (["-m", "nowhere"], "there is no module nowhere"),
        (["-m", "nowhere.inner"], "there is no module nowhere.inner"),
        (["-m"], "-m: expected the name of a module"),
    ):
        done = run_python("-c", RUN, *words, cwd=folder, env=environment())
        assert done.returncode == 1 and f"UsageError: {why}" in done.stderr
