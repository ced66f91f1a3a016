"""Each tool of docs/commands.md, with a program whose ranks are on two machines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.dap.ide import Ide
from tests.support.markers import marked_line
from tests.support.waiting import wait_until

WORKING = Path(__file__).with_name("working.py")
NEXT = f"working.py:{marked_line(str(WORKING), 'next')}"

#: Commands that look at running ranks, and what is among the things that they print.
LOOKS = [
    (["ps", "--timeout", "60"], ["4: 4 running", "mesh{hosts=2,gpus=2} worker,helper,asker"]),
    (["ps", "--timeout", "60", "-vv"], ["| n1 ", "| n2 ", "MiB"]),
    (["ps", "--timeout", "60", "--json"], ['"states": {"running": 4}']),
    (["list", "all"], ["| worker ", "| n1 ", "| n2 "]),
    (["status"], ["hosts=2, gpus=2", "4 ranks alive", "worker 0-3: running"]),
    (["names"], ["worker", "helper", "asker", "dimensions: hosts, gpus"]),
    (["where"], ["4/4  all", "next  cluster/working.py"]),
    (["memory"], ["  n1  ", "  n2  ", "4 ranks: "]),
    (["vars", "worker"], ["self.data", "0-3"]),
    (["top", "--once"], ["  n1  ", "  n2  ", "4 ranks: 4 running"]),
    (["top", "--once", "--json"], ['"host": "n2"', '"actor": "helper"']),
    (["p", "worker", "len(self.data)"], ["[0-3] 5000000"]),
    (["pp", "worker", "len(self.data)"], ["[0-3] 5000000"]),
    (["source", "worker", "self.next"], ["[0-3]", "return count + 1"]),
    (["whatis", "worker", "self"], ["[0-3] <class '__main__.Worker'>"]),
    (["postmortem", "--modes"], ["[0-3] default"]),
    (["debug", "-c", "list all", "-c", "status"], ["| n2 ", "worker 0-3: running"]),
]


class Working:
    """The program, and commands beside it."""

    def __init__(self, cluster: Cluster, stop: Path) -> None:
        self._cluster = cluster
        self._stop = stop
        self.meshrt = cluster.meshrt
        self._program = cluster.start("work", str(stop), program=WORKING)
        wait_until(lambda: "next  cluster/working.py" in cluster.meshrt("where", fails=True), 60, "working ranks")

    def end(self) -> None:
        self._stop.touch()
        out, err = self._program.communicate(timeout=60)
        assert (self._program.returncode, out) == (0, "ran 4\n"), err


@pytest.fixture
def working(cluster: Cluster, tmp_path: Path) -> Working:
    return Working(cluster, tmp_path / "stop")


@pytest.mark.nightly
def test_tools_that_look(working: Working) -> None:
    wrong = []
    for words, expected in LOOKS:
        told = working.meshrt(*words)
        wrong += [(words, each, told) for each in expected if each not in told]
    assert not wrong
    ranks = json.loads(working.meshrt("top", "--once", "--json"))["ranks"]
    assert [rank["host"] for rank in ranks] == ["n1", "n1", "n2", "n2"]
    assert all(rank["rss"] > 10_000_000 and rank["calls"] > 0 for rank in ranks if rank["host"] == "n2")
    working.end()


@pytest.mark.nightly
def test_tools_that_stop_ranks(working: Working) -> None:
    meshrt = working.meshrt
    assert f"breakpoint 1  {NEXT} on" in meshrt("tbreak", "worker", NEXT)
    meshrt("wait", "worker", "30")
    assert meshrt("list").count("| worker ") == 4 and f"next  cluster/{NEXT}    stopped" in meshrt("where")
    assert meshrt("cast", "worker", "ranks(hosts=1)", "p count >= 0") == "[2-3] True\n"
    assert "[0-3]" in meshrt("p", "worker", "type(count).__name__")
    assert "hit [0-3] once" in meshrt("breaks")
    meshrt("clear")
    assert "rank 3 of worker: resumed" in meshrt("continue", "worker", "ranks(3)")
    meshrt("continue")
    assert meshrt("list").count("| worker ") == 0
    meshrt("interrupt", "worker", "ranks(1:3)")
    meshrt("wait", "worker", "ranks(1:3)", "30")
    assert meshrt("list").count("| worker ") == 2
    assert "'next'" in meshrt("debug", "-c", "attach worker 2", "-c", "p self.next.__name__", "-c", "c")
    meshrt("continue")
    assert meshrt("list").count("| worker ") == 0
    working.end()


@pytest.mark.nightly
def test_an_ide_stops_ranks_of_both_machines(working: Working, cluster: Cluster) -> None:
    pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")
    ide = Ide([*cluster.inside, sys.executable, "-m", "meshrt", "dap", "--stdio"], {})
    ide.breakpoints[str(WORKING)] = [{"line": marked_line(str(WORKING), "next")}]
    with ide:
        stopped = ide.stopped(4, 60)
        assert sorted(session.evaluate("__import__('socket').gethostname()") for session in stopped) == [
            "'n1'", "'n1'", "'n2'", "'n2'"
        ]  # fmt: skip
        ide.disconnect()
    working.end()


@pytest.mark.nightly
def test_deadlines_wait_while_a_rank_of_another_machine_is_stopped(cluster: Cluster) -> None:
    program = cluster.start("hold", program=WORKING)
    wait_until(lambda: cluster.meshrt("list", fails=True).count("| worker ") == 4, 60, "four stopped ranks")
    time.sleep(4)  # longer than the call may take
    cluster.meshrt("continue")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (0, "held [7, 7, 7, 7]\n"), err


@pytest.mark.slow
def test_a_launcher_is_told_of_a_failure_on_another_machine(cluster: Cluster, tmp_path: Path) -> None:
    """By ``meshrt run``, as by a script; and ``meshrt postmortem`` has the report."""
    command = [*cluster.inside, sys.executable, "-m", "meshrt", "run", str(WORKING), "fail"]
    errors = tmp_path / "error.json"
    env = {**cluster.environment, "MESHRT_RUNS": str(tmp_path / "runs"), "TORCHELASTIC_ERROR_FILE": str(errors)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "ValueError: as asked" in done.stderr
    assert "as asked" in errors.read_text()
    asked = [*cluster.inside, sys.executable, "-m", "meshrt", "postmortem"]
    report = subprocess.run(asked, env=env, capture_output=True, text=True, timeout=60).stdout
    assert "ValueError: as asked" in report and "rank 3" in report and "n2" in report
