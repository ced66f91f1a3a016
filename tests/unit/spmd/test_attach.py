"""What ``meshrt attach PID`` says, and what it has processes run."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import pytest

from meshrt.errors import MeshError, UsageError
from meshrt.spmd import attach
from meshrt.spmd.parts import Arrival, JobSpec
from meshrt.spmd.telling import Folder


def given(*pids: int, name: str = "main", mesh: str = "") -> dict[str, object]:
    return {"pids": [*pids], "name": name, "mesh": mesh, "seconds": 1.0}


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="for earlier versions of Python")
def test_before_3_14_there_is_a_way_instead() -> None:
    expected = r"Python 3\.14 or newer is required.*`meshrt run SCRIPT`.*`meshrt\.join\(\)`.*where --pid"
    with pytest.raises(UsageError, match=expected):
        attach.show(given(1))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (given(0), r"PID \d+ is this command; to attach to a stopped rank, name its actor"),
        (given(7, mesh="dp=2"), "--mesh dp=2 has 2 ranks, but the number of PIDs is 1"),
        (given(7, 7), "PID 7 is given twice"),
        (given(7, name="a b"), "an actor is named with a letter"),
    ],
)
def test_what_is_refused(arguments: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach, "_FIRST", (3, 11))
    if arguments["pids"] == [0]:
        arguments = {**arguments, "pids": [os.getpid()]}
    with pytest.raises(UsageError, match=why):
        attach.show(arguments)


def test_what_a_process_runs(tmp_path: Path) -> None:
    spec = JobSpec(str(tmp_path / "meet-7"), {"n": 1}, ["x.py"], "main", "attach", 0, 1, 7, "main")
    with Folder(tmp_path) as folder:
        text = attach._script(folder, 7, spec, 3, tmp_path)
    (whole,) = ast.parse(text).body
    assert isinstance(whole, ast.Try)
    (run,) = whole.body
    assert isinstance(run, ast.Expr) and isinstance(run.value, ast.Call)
    last = ast.parse(ast.literal_eval(run.value.args[0])).body[-1]
    assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Call)
    values = ast.literal_eval(last.value.keywords[0].value)
    assert values["places"].keys() >= {"msgspec", "msgpack"} and Arrival.from_json(values["part"]).rank == 3


def test_a_part_travels_as_text() -> None:
    arrival = Arrival("{}", 3, ["python", "-u"], {"TMPDIR": "/x"})
    assert Arrival.from_json(arrival.to_json()) == arrival


def test_what_has_become_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    pids = [11, 12, os.getpid(), 400_000_000]
    told = {11: ("joined", ""), 12: ("failed", "no room")}
    with pytest.raises(MeshError) as raised:
        attach._report(told, pids, "trainer", 5.0)
    assert capsys.readouterr().out == "PID 11 is rank 0 of trainer\n"
    assert str(raised.value).splitlines() == [
        "PID 12 has not joined: no room",
        f"PID {os.getpid()} has run no Python code for 5 s because its main thread is in C code: "
        "it joins as rank 2 when it runs Python code again",
        "PID 400000000 has ended",
    ]
    assert attach._report({11: ("joined", "")}, [11], "trainer", 5.0) == 0
