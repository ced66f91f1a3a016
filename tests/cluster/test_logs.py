"""What ranks print on other machines is in the run directory of the script, also when a machine is gone."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.support.waiting import wait_until

PRINTING = Path(__file__).with_name("printing.py")


@pytest.fixture
def runs(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program keeps its run directory."""
    directory = tmp_path / "runs"
    directory.mkdir(mode=0o700)
    monkeypatch.setitem(cluster.environment, "MESHRT_RUNS", str(directory))
    return directory


def start(cluster: Cluster, what: str, **environment: str) -> subprocess.Popen[str]:
    """Start the program."""
    program = subprocess.Popen(
        [*cluster.inside, sys.executable, str(PRINTING), what],
        env={**cluster.environment, **environment},
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    cluster.programs.append(program)
    return program


def log_of(runs: Path, rank: int) -> Path | None:
    return next(runs.glob(f"*/*.{rank}.log"), None)


@pytest.mark.nightly
def test_of_a_machine_that_is_gone_all_lines_are_there_that_were_printed_a_second_before(
    cluster: Cluster, runs: Path
) -> None:
    program = start(cluster, "go_on")
    wait_until(lambda: (log := log_of(runs, 3)) and log.read_text().count("\n") > 100, 60, "lines of rank 3")
    cluster.machines[1].cut()
    cluster.machines[1].end_processes()
    killed = time.time()
    out, err = program.communicate(timeout=90)
    assert "HostLost" in out, out + err
    for rank in (2, 3):
        log = log_of(runs, rank)
        assert log is not None
        lines = [line.split() for line in log.read_text().splitlines()]
        assert [int(number) for _, number, _ in lines] == list(range(len(lines)))
        assert float(lines[-1][2]) > killed - 1.0


def wait_for_part(program: subprocess.Popen[str]) -> None:
    """Wait until a part of the program is done."""
    assert program.stdout is not None
    assert any(line == "said\n" for line in program.stdout)


def go_on(program: subprocess.Popen[str]) -> None:
    """Let it go on."""
    assert program.stdin is not None
    program.stdin.write("\n")
    program.stdin.flush()


@pytest.mark.slow
def test_logs_shows_lines_of_both_machines_in_their_order(cluster: Cluster, runs: Path) -> None:
    program = start(cluster, "in_turn")
    wait_for_part(program)
    command = [*cluster.inside, sys.executable, "-m", "meshrt", "logs", "-f", "printer"]
    following = subprocess.Popen(command, env=cluster.environment, text=True, stdout=subprocess.PIPE)
    cluster.programs.append(following)
    assert following.stdout is not None
    shown = ""
    while not ("turn 0" in shown and "turn 1" in shown):
        shown += following.stdout.readline()
    go_on(program)
    wait_for_part(program)
    go_on(program)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 0, out + err
    shown, _ = following.communicate(timeout=60)
    assert re.findall(r"turn (\d)", shown) == ["2", "3", "4", "5"], shown
    ended = cluster.meshrt("logs", next(runs.iterdir()).name)
    assert sorted(re.findall(r"turn (\d)", ended)) == list("012345"), ended


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_a_rank_that_prints_much_fills_no_memory_and_holds_nothing_up(cluster: Cluster, runs: Path) -> None:
    program = start(cluster, "flood")
    out, err = program.communicate(timeout=200)
    assert program.returncode == 0, err
    found = re.search(r"flooded: ([\d.]+) s, (\d+) KiB", out)
    assert found is not None, out[-2000:]
    assert float(found[1]) < 5 and int(found[2]) < 250_000
    log = log_of(runs, 2)
    assert log is not None
    lines = log.read_text().splitlines()
    last = [int(line[:8]) for line in lines if not line.startswith("meshrt: ")][-10_000:]
    assert last == list(range(990_000, 1_000_000))
