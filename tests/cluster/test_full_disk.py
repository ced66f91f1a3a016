"""The disk of one host is full: its ranks go on, and the script has what they print and leave."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.full import SIZE
from tests.cluster.test_logs import log_of, runs

__all__ = ["runs"]

FULL = Path(__file__).with_name("full.py")
LINES = 5000


@pytest.mark.nightly
@pytest.mark.row("H5")
@pytest.mark.timeout(240)
def test_the_host_goes_on_and_the_script_has_all(cluster: Cluster, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cluster.environment, "MESHRT_POST_MORTEM", "dump")
    program: subprocess.Popen[str] = cluster.start(str(LINES), program=FULL)
    assert program.stdout is not None
    assert program.stdout.readline() == "lengths [1000, 1000]\n", program.communicate()
    cluster.machines[1].fill()
    out, err = program.communicate("full\n", timeout=150)
    assert program.returncode == 0, out[-3000:] + err
    assert f"totals [{SIZE}, {SIZE}]\n" in out and f"made {SIZE}\n" in out
    (saved,) = [line for line in out.splitlines() if line.startswith("save ActorError ")]
    assert "No space left on device" in saved and " on n2, " in saved
    assert "more [1000, 1000]\n" in out
    for rank in (0, 1):
        log = log_of(runs, rank)
        assert log is not None
        numbers = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("line ")]
        assert numbers == list(range(LINES))
    (dump,) = next(runs.iterdir()).glob("post-mortem/*")
    assert "No space left on device" in dump.read_text()
