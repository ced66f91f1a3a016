"""Files that ranks of another machine leave for the user are in the run directory of the script."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_logs import runs, start

__all__ = ["runs"]


@pytest.mark.nightly
def test_what_failures_leave_on_another_machine(cluster: Cluster, runs: Path) -> None:
    program = start(cluster, "failures", MESHRT_POST_MORTEM="dump")
    out, err = program.communicate(timeout=100)
    assert "fail ActorError\nleave_word ProcessDied\ncrash ProcessDied\n" in out, out + err
    (run,) = runs.iterdir()
    (dump,) = (run / "post-mortem").iterdir()
    assert f"--open {dump}" in out + err
    shown = cluster.meshrt("debug", "--open", str(dump), fails=True)
    assert "bad batch on rank" in shown + dump.read_text()
    failures = [json.loads(path.read_text()) for path in run.glob("failure-*.json")]
    records = [record for failure in failures for record in failure["records"]]
    assert any(record.get("left", {}).get("message") == "the loader has no data" for record in records), records
    assert any("Fatal Python error: Aborted" in record.get("stack", "") for record in records)
    assert all(record["clock"] and record["clock_error"] < 50_000_000 for record in records)
    report = cluster.meshrt("postmortem", run.name)
    assert "n2" in report


@pytest.mark.slow
def test_a_rank_that_asks_for_more_memory_than_its_limit(cluster: Cluster, runs: Path) -> None:
    program = start(cluster, "memory", MESHRT_MEMORY_LIMIT="1GiB")
    out, err = program.communicate(timeout=100)
    assert "ActorError True" in out, out + err
    # The last one is of the request that was refused; one before it says that there is not much left.
    *_, path = re.findall(r"meshrt memory --open (\S+)", out + err)
    assert next(runs.iterdir()) in Path(path).parents
    assert "hoard" in cluster.meshrt("memory", "--open", path)
