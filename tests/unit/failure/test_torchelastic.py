"""Error files in the format of TorchElastic: what is written, and reading whatever there is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import meshrt
from meshrt.failure.record import LeftBehind
from meshrt.failure.torchelastic import read, write
from meshrt.transport.directories import ERROR_FILE


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "error.json"))
    return tmp_path / "error.json"


def test_what_the_launcher_reads(file: Path) -> None:
    assert write("ValueError: bad", "line 1\n\x1b[31mline 2", 1_795_215_857.9, {"number": 1})
    document = json.loads(file.read_text())
    assert document == {
        "message": {
            "message": "ValueError: bad",
            "extraInfo": {"py_callstack": "line 1\n\\x1b[31mline 2", "timestamp": "1795215857"},
        },
        "meshrt": {"number": 1},
    }
    assert read(file) == LeftBehind("ValueError: bad", "line 1\n\\x1b[31mline 2", 1_795_215_857.0)


def test_it_is_bounded(file: Path) -> None:
    write("m" * 1_000_000, "t" * 10_000_000, 1.0)
    assert file.stat().st_size < 70_000


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_launcher_nothing_is_written(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ERROR_FILE, raising=False)
    if value is not None:
        monkeypatch.setenv(ERROR_FILE, value)
    assert not write("a", "b", 1.0)


def test_a_main_function(file: Path) -> None:
    @meshrt.record
    def main(number: int) -> int:
        """Doubles."""
        if number < 0:
            raise ValueError(f"bad {number}")
        return 2 * number

    assert (main(3), main.__name__, main.__doc__) == (6, "main", "Doubles.") and not file.exists()
    with pytest.raises(ValueError, match="bad -1"):
        main(-1)
    left = read(file)
    assert left is not None and left.message == "ValueError: bad -1" and left.timestamp > 1.7e9
    assert 'raise ValueError(f"bad {number}")' in left.traceback


def test_a_main_coroutine(file: Path) -> None:
    @meshrt.record
    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(main())
    left = read(file)
    assert left is not None and left.message == "KeyError: 'x'"


def test_the_file_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(ERROR_FILE, "/nowhere/at/all/error.json")

    @meshrt.record
    def main() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        main()
    assert "meshrt: the launcher could not be told of the error: No such file" in capfd.readouterr().err


OLD = {"message": {"message": "RuntimeError: x", "extraInfo": {"py_callstack": ["a\n", "b\n"], "timestamp": 12}}}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"message": "text", "timestamp": 12}', LeftBehind("text", timestamp=12.0)),
        (json.dumps(OLD), LeftBehind("RuntimeError: x", "a\nb\n", 12.0)),
        ('{"message": {"message": "m", "extraInfo": {"timestamp": "12.25"}}}', LeftBehind("m", timestamp=12.25)),
        ('{"message": {"message": "m"}}', LeftBehind("m")),
        ('{"message": {"message": "m", "extraInfo": 3}}', LeftBehind("m")),
        ('{"message": {"mess', LeftBehind('{"message": {"mess', problem="it is cut off, or no error file")),
        ("", LeftBehind(problem="it is cut off, or no error file")),
        ("[1]", LeftBehind("[1]", problem="it is no error file")),
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
