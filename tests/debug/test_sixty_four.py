"""Sixty-four ranks: what is equal is said once, and the odd rank is seen."""

from __future__ import annotations

import re

import pytest

from meshrt import proc_mesh
from tests.debug.harness import person
from tests.debug.trains import Trains, line_of
from tests.support.waiting import wait_until

WAIT = 60
#: Ranks that are not gpus=3.
REST = "0-2,4-10,12-18,20-26,28-34,36-42,44-50,52-58,60-63"


@pytest.mark.slow
def test_sixty_four_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.debug.broker.notices.QUIET_SECONDS", 1.0)  # a loaded machine splits a wave otherwise
    mesh = proc_mesh(hosts=8, gpus=8, preload=["tests.debug.trains"]).spawn("w", Trains).get(WAIT)
    compute, train, wait = (f"trains.py:{line_of(name)}" for name in ("compute", "train", "wait"))
    with person() as me:
        assert me(f"break {compute} ranks(gpus=0)").startswith(f"breakpoint 1  {compute} on ranks(gpus=0)\n")
        result = mesh.compute.call(1)
        me.wait("w", "ranks(gpus=0)")
        assert [row["rank"] for row in me.rows()] == list(range(0, 64, 8))
        me.heard(f"8 ranks of w (0-56:8) stopped at {compute} (compute)")
        assert me("list").count("| w ") == 8  # up to 32 rows stay single
        me("clear all")
        assert me("continue") == "8 ranks of w (0-56:8): resumed\n"
        assert set(result.get(WAIT).values()) == {2}

        trained = mesh.train.call(13)
        me.wait("w", seconds=WAIT)
        (row,) = [row for row in me("list").splitlines() if "| w " in row]
        assert [cell.strip() for cell in row.split("|")[1:4]] == ["w", "0-63", "hosts=*, gpus=*"]
        assert me("list -v").count("| w ") == 64
        assert "{'hosts': 7, 'gpus': 6}" in me.terminal.shown
        assert me("cast w ranks(gpus=3) n").startswith("[3-59:8]\n> ")
        rows = [row for row in me("list").splitlines() if "| w " in row]
        assert len(rows) == 2
        assert "| hosts=*, gpus=3 " in rows[1]
        status = me("status").splitlines()
        assert status[0].endswith("(hosts=8, gpus=8): 64 ranks alive; actors: w")
        assert status[1].startswith(f"w {REST}: stopped at {train} (train) for ")
        assert status[2].startswith("w 3-59:8: stopped at trains.py")
        where = me("where")
        assert where.startswith("64 ranks of mesh1\n")
        assert f"56/64  {REST}" in where
        assert "8/64  hosts=*, gpus=3 " in where
        assert where.splitlines()[-1] == "  likely culprits: hosts=*, gpus=3 (at another place than the other 56)"

        assert me("cast w ranks(:) p weights") == (
            "[0-63] ndarray 4x4 float64, min 0 [0], max 63 [63], mean 0 [0] to 63 [63], NaN on [13]\n(-v shows all)\n"
        )
        assert "[13] ndarray 4x4 float64, min 13, max 13, mean 13, 1 nan\n" in me("cast -v w ranks(:) p weights")
        assert me.terminal.shown.splitlines()[-1] == "NaN on [13]"
        numbers = me("cast w ranks(:) p loss").splitlines()
        assert numbers == [
            "[0-63] 64 values: min 0.5 [0], median 0.5325, max 70 [13]; outliers: [13] 70",
            "(-v shows all)",
        ]
        assert me("cast -v w ranks(:) p loss").count("\n") == 65
        assert me("cast w ranks(:) p text").startswith("[0-63] 'line 0\\n")
        assert me.terminal.shown.count("\n") == 1
        assert me("cast w ranks(:) print(text)").splitlines() == ["[0-63]", *(f"line {n}" for n in range(50))]
        assert me("cast --diff 0 w ranks(:) p odd - (self.rank == 5)") == "[0] 13\n[1-4,6-63] the same\n[5] 12  (-1)\n"
        assert me("logs w") == "[0-12,14-63] a rank trains\n[13] rank 13 trains\n"
        assert me("continue") == "64 ranks of w (0-63): resumed\n"
        assert trained.get(WAIT).item(hosts=1, gpus=5) == 459

        waiting = mesh.wait.call()
        wait_until(lambda: re.search(rf"64/64  all +wait  debug/{wait}", me("where w")), 20)
        assert me("interrupt w ranks(hosts=2:4, gpus=1)").startswith("[17,25]\n> ")
        assert "2/64  hosts=2:4, gpus=1  └ stopped in the debugger" in me("where w")
        assert me("p w self.go.set()") == "[0-63] None\n"
        assert me("continue") == "2 ranks of w (17,25): resumed\n"
        assert sorted(waiting.get(WAIT).values()) == list(range(64))
