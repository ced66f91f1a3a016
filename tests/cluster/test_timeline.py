"""A recording of ranks on two machines, whose monotonic clocks are a day apart."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_logs import go_on, runs, start, wait_for_part

__all__ = ["runs"]

#: Microseconds: the clocks are compared more exactly than that, on a machine that is busy.
_CLOSE = 50_000


@pytest.mark.nightly
def test_endpoints_of_both_machines_run_within_the_calls_of_the_script(
    cluster: Cluster, runs: Path, tmp_path: Path
) -> None:
    program = start(cluster, "in_turn")
    wait_for_part(program)
    out = tmp_path / "out.json"
    command = [*cluster.inside, sys.executable, "-m", "meshrt", "timeline", str(out), "--seconds", "100"]
    recording = subprocess.Popen(command, env=cluster.environment, text=True, stderr=subprocess.PIPE)
    cluster.programs.append(recording)
    assert recording.stderr is not None
    assert recording.stderr.readline().startswith("meshrt timeline: recording 4 ranks")
    go_on(program)
    wait_for_part(program)
    recording.terminate()
    assert recording.wait(60) == 0
    events = json.loads(out.read_text())["traceEvents"]
    calls = {event["args"]["call"]: event for event in events if event["ph"] == "X" and event["cat"] == "call"}
    runs_of = [event for event in events if event["ph"] == "X" and event["cat"] == "endpoint"]
    assert len(runs_of) == 4 and len({event["pid"] for event in runs_of}) == 2
    for event in runs_of:
        call = calls[event["args"]["call"]]
        assert call["ts"] - _CLOSE < event["ts"] < event["ts"] + event["dur"] < call["ts"] + call["dur"] + _CLOSE
    starts, ends = ([event for event in events if event["ph"] == phase] for phase in "sf")
    assert len(starts) == len(ends) == 4
    assert {event["pid"] for event in ends} == {event["pid"] for event in runs_of}
    go_on(program)
    program.communicate(timeout=60)
