"""Finding the source of shipped code in the process that ships it."""

from __future__ import annotations

import linecache
import subprocess
import sys
from pathlib import Path

import pytest

from meshrt.wire import source
from tests.support.programs import environment, run_python

ASK = """\
def function():
    return 42  # the line
from meshrt.wire.source import source_text
print("TEXT", repr(source_text(function.__code__.co_filename)))
"""


def test_the_source_of_a_module_is_its_file() -> None:
    assert source.source_text(__file__) == Path(__file__).read_text()


def test_what_linecache_knows_is_known() -> None:
    """As notebooks register their cells."""
    linecache.cache["<cell 7>"] = (3, None, ["x = 1\n"], "<cell 7>")
    try:
        assert source.source_text("<cell 7>") == "x = 1\n"
    finally:
        del linecache.cache["<cell 7>"]
    assert source.source_text("<cell 8>") is None
    assert source.source_text("/no/such/file.py") is None


def test_what_is_typed_at_an_interactive_python_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python keeps it since 3.14, for each code in the statement."""
    entry = (19, None, ["def f():\n", "    return 1\n"], "<stdin>")
    kept = {("<stdin-1>", "<module>", 1): entry, ("<stdin-1>", "f", 1): entry}
    monkeypatch.setattr(linecache, "_interactive_cache", kept, raising=False)
    assert source.source_text("<stdin-1>") == "def f():\n    return 1\n"
    assert source.source_text("<stdin-2>") is None


CELL = """\
class Cell:
    def fail(self):
        raise ValueError(
            "no")
"""
BARE = """\
Traceback (most recent call last):
  File "<cell 7>", line 3, in fail
  File "<cell 7>", line 3, in __init__
  File "<cell 7>", line 99, in fail
  File "<cell 7>", line 3, in <module>
  File "<cell 7>", line 3, in <lambda>
  File "/no/such/file.py", line 1, in run
  File "/etc/passwd", line 1, in run
  File "/src/a.py", line 7, in step
    step()
ValueError: no
"""


def test_lines_of_a_traceback_are_filled_in_where_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """``__init__``: of a dataclass, say, whose code Python has made, with a name that other code may have."""
    monkeypatch.setitem(linecache.cache, "<cell 7>", (3, None, CELL.splitlines(keepends=True), "<cell 7>"))
    line = "    raise ValueError(\n"
    head, _, rest = BARE.partition("in fail\n")
    assert source.with_lines(BARE) == f"{head}in fail\n{line}{rest}"
    group = '  | Traceback (most recent call last):\n  |   File "<cell 7>", line 3, in fail\n  | ValueError: no\n'
    assert "in fail\n  |     raise ValueError(\n" in source.with_lines(group)
    assert source.with_lines("") == "" and source.with_lines(source.with_lines(BARE)) == source.with_lines(BARE)
    assert source.line_of("<cell 7>", 4, "fail") == '"no")' and not source.line_of("<cell 7>", 0, "fail")
    assert not source.line_of("<cell 7>", 4, "run") and source.line_of(__file__, 1, "run").startswith('"""Finding')


@pytest.mark.parametrize("flags", [["-c"], ["-B", "-c"], ["-Bc"], ["-X", "utf8", "-c"], ["-W", "error", "-c"]])
def test_a_command_is_found_on_the_command_line(flags: list[str]) -> None:
    assert f"TEXT {ASK!r}" in run_python(*flags, ASK).stdout
    assert f"TEXT {ASK!r}" in run_python(*flags, ASK, "-c", "other").stdout


def test_a_script_from_a_file_on_standard_input(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(ASK)
    with (tmp_path / "script").open() as file:
        done = subprocess.run(
            [sys.executable], stdin=file, capture_output=True, text=True, env=environment(), check=True
        )
    assert f"TEXT {ASK!r}" in done.stdout


def test_a_short_script_from_a_pipe() -> None:
    assert f"TEXT {ASK!r}" in run_python("-", input=ASK).stdout


def test_code_of_files_keeps_its_name() -> None:
    assert source.alias_of(test_code_of_files_keeps_its_name.__code__) is None
    code = compile("def f(): pass", "<stdin>", "exec")
    assert source.alias_of(code) is None  # not at a prompt
