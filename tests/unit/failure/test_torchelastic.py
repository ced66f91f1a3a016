"""Error files in the format of TorchElastic: what is written, and reading whatever there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshrt.failure.record import LeftBehind
from meshrt.failure.torchelastic import read, write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "error.json"


def test_what_the_launcher_reads(file: Path) -> None:
    write(file, "ValueError: bad", "line 1\n\x1b[31mline 2", 1_795_215_857, {"number": 1})
    document = json.loads(file.read_text())
    assert document == {
        "message": {
            "message": "ValueError: bad",
            "extraInfo": {"py_callstack": "line 1\n\\e[31mline 2", "timestamp": "1795215857"},
        },
        "meshrt": {"number": 1},
    }
    assert read(file) == LeftBehind("ValueError: bad", "line 1\n\\e[31mline 2", 1_795_215_857.0)


@pytest.mark.slow
def test_it_is_bounded(file: Path) -> None:
    write(file, "m" * 1_000_000, "t" * 10_000_000, 1)
    assert file.stat().st_size < 70_000


OLD = {"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": ["a\n", "b\n"], "timestamp": 12}}}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"message": "text", "timestamp": 12}', LeftBehind("text", timestamp=12.0)),
        (json.dumps(OLD), LeftBehind("RuntimeError: x", "a\nb\n", 12.0)),
        ('{"message": {"message": "m", "extraInfo": {"timestamp": "12.25"}}}', LeftBehind("m", timestamp=12.25)),
        ('{"message": {"message": "m"}}', LeftBehind("m")),
        ('{"message": {"message": "m", "extraInfo": 3}}', LeftBehind("m")),
        ('{"message": {"mess', LeftBehind('{"message": {"mess', problem="the file is cut off, or not an error file")),
        ("", LeftBehind(problem="the file is cut off, or not an error file")),
        ("[1]", LeftBehind("[1]", problem="not a valid error file")),
    ],
)
def test_what_others_have_written(text: str, left: LeftBehind, tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_text(text)
    assert read(path) == left


def test_there_is_none(tmp_path: Path) -> None:
    assert read(tmp_path / "error.json") is None
    left = read(tmp_path)
    assert left is not None and "cannot be read: Is a directory" in left.problem


DOCUMENTS: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["message", "extraInfo", "py_callstack", "timestamp"]), inner, max_size=4)
    ),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DOCUMENTS.map(json.dumps) | st.text())
def test_reading_never_fails(tmp_path: Path, text: str) -> None:
    path = tmp_path / "error.json"
    path.write_text(text, errors="backslashreplace")
    assert isinstance(read(path), LeftBehind)
