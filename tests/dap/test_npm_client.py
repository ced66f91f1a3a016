"""Microsoft's client for testing adapters, on programs under plain debugpy, and on ranks of a mesh."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshrt import proc_mesh
from tests.dap import debugged
from tests.dap.debugged import Debugged
from tests.dap.debuggee import SOURCE, debuggee
from tests.dap.npm_client import NpmClient, why_not
from tests.dap.router import router
from tests.support.markers import marked_line

pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")
pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

WAIT = 30.0
DOUBLED = marked_line(SOURCE, "doubled")
ADDED = marked_line(debugged.__file__, "add")


@pytest.mark.parametrize("start_debugging", [True, False], ids=["startDebugging", "debugpyAttach"])
def test_a_course(tmp_path: Path, start_debugging: bool) -> None:
    with (
        debuggee(tmp_path, children=1) as program,
        NpmClient(
            program.address[1],
            {"name": "a root", "connect": program.connect},
            path=SOURCE,
            line=DOUBLED,
            expression="answer",
            children=1,
            root_stops=True,
            start_debugging=start_debugging,
        ) as client,
    ):
        client.wait_attached()
        assert program.said() == ["child0 up"]
        program.tell("4")
        client.wait_looked()
        assert program.said(2) == ["child0 8", "root 8"]
        found = client.leave()
        assert found["announced"] == ["startDebugging" if start_debugging else "debugpyAttach"]
        child, root = found["sessions"]
        assert root == {
            "name": "a root",
            "verified": [True],
            "reason": "breakpoint",
            "line": DOUBLED,
            "value": "8",
            "threads": ["MainThread"],
            "stepped": "main",
            "ended": True,
        }
        assert child["name"].startswith("Subprocess ") and {**child, "name": "a root"} == root
        program.tell("5")
        assert program.said(2) == ["child0 10", "root 10"]


@pytest.mark.parametrize(
    ("hosts", "start_debugging"),
    [(2, True), (2, False), (8, True)],
    ids=["startDebugging", "debugpyAttach", "16 ranks"],
)
def test_a_course_on_ranks(hosts: int, start_debugging: bool) -> None:
    trainer = proc_mesh(hosts=hosts, gpus=2).spawn("trainer", Debugged)
    trainer.initialized.get(WAIT)
    count = 2 * hosts
    with (
        router() as served,
        NpmClient(
            served.configuration["connect"]["port"],
            served.configuration,
            path=debugged.__file__,
            line=ADDED,
            expression="before + 10 * by",
            children=count,
            start_debugging=start_debugging,
        ) as client,
    ):
        client.wait_attached()
        call = trainer.step.call(4)
        client.wait_looked()
        assert list(call.get(WAIT).values()) == [4] * count
        found = client.leave()
    assert found["announced"] == ["startDebugging" if start_debugging else "debugpyAttach"] * count
    root, *ranks = sorted(found["sessions"], key=lambda session: (session["name"] != "meshrt", session["name"]))
    assert root == {"name": "meshrt", "verified": [False], "ended": True}
    assert {rank["name"] for rank in ranks} == {
        f"hosts={rank // 2},gpus={rank % 2} (rank {rank})" for rank in range(count)
    }
    for rank in ranks:
        assert {**rank, "name": ""} == {
            "name": "",
            "verified": [True],
            "reason": "breakpoint",
            "line": ADDED,
            "value": "40",
            "threads": ["MainThread"],
            "stepped": "step",
            "ended": True,
        }


def test_what_fails_is_told() -> None:
    with (
        NpmClient(1, {}, path=SOURCE, line=DOUBLED, expression="answer", children=0) as client,
        pytest.raises(AssertionError, match=r"ended after .*: Error: connect ECONNREFUSED 127\.0\.0\.1:1"),
    ):
        client.wait_attached()
