"""What py-spy writes, as records; and what is said where it writes nothing."""

from __future__ import annotations

import os
from typing import Any

import pytest

from meshrt.errors import MeshError
from meshrt.inspect import pyspy
from meshrt.inspect.pyspy import ask, find, records_of

PID = 4711


def frame(file: str, line: int, name: str) -> dict[str, Any]:
    return {"name": name, "filename": file, "module": None, "short_filename": "x", "line": line, "locals": None}


def thread(ident: int, name: str | None, *frames: dict[str, Any], active: bool = False) -> dict[str, Any]:
    facts = {"pid": PID, "thread_id": ident + 1000, "thread_name": name, "os_thread_id": ident}
    return {**facts, "active": active, "owns_gil": False, "frames": [*frames], "process_info": None}


BOOT = "/opt/py/lib/python3.12/threading.py"


def test_threads_of_another_python() -> None:
    """Innermost first there, outermost first here; what carries a call in its standard library is not shown."""
    loader = thread(9, "loader-1", frame("/a/x.py", 4, "load"), frame(BOOT, 7, "Thread.run"))
    idle = thread(8, "pool", frame(BOOT, 9, "Thread.run"))
    main = thread(PID, None, frame("/a/x.py", 9, "step"), frame("/a/x.py", 2, "<module>"), active=True)
    first, second = records_of([loader, idle, main], PID)
    assert (first.kind, first.actor, first.name, first.state) == ("actor", "main thread", "MainThread", "running")
    assert [(each.function, each.line) for each in first.frames] == [("<module>", 2), ("step", 9)]
    assert (second.kind, second.name, second.state) == ("thread", "loader-1", "blocked")
    assert [each.function for each in second.frames] == ["load"]
    assert len(records_of([loader, idle, main], PID, verbose=True)) == 3


def test_a_main_thread_in_the_library_alone_is_shown() -> None:
    (record,) = records_of([thread(PID, "MainThread", frame(BOOT, 7, "Thread.join"))], PID)
    assert [each.function for each in record.frames] == ["Thread.join"]


@pytest.mark.parametrize("document", [[{}], [{"os_thread_id": PID, "frames": 7}]])
def test_another_document(document: Any) -> None:
    with pytest.raises((KeyError, TypeError)):
        records_of(document, PID)


def test_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(MeshError, match=r"needs py-spy, which is not installed: .*py-spy"):
        find()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Permission Denied: Try running again' >&2; exit 1", "access to PID"),
        (
            "echo 'Error: Failed to find a thing' >&2; exit 1",
            r"py-spy cannot read its Python .*: Failed to find a thing",
        ),
        ("exit 1", "no message"),
        ("echo no json", "JSONDecodeError"),
        ("echo '[{}]'", "KeyError"),
    ],
)
def test_what_it_says(script: str, why: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(pyspy, "find", lambda: str(program))
    (answer,) = ask("m", [os.getpid()])
    with pytest.raises(MeshError, match=why):
        raise MeshError(getattr(answer, "why", "an answer"))
