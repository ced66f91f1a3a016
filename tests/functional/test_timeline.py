"""``meshrt timeline`` on programs that run: whatever becomes of ranks, the file has the spans of the others."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt import ActorMesh, SupervisionError, proc_mesh
from tests.support.pausing import paused
from tests.support.programs import another_program, environment, run_python
from tests.support.relays import Relay
from tests.support.waiting import wait_until

WAIT = 30


class Recording:
    """The command at work."""

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self._process = process
        self._out = out
        self.said = ""

    def end(self, number: int = signal.SIGINT) -> dict[str, Any]:
        """Press Ctrl-C, or end it as `timeout` does, and return the file."""
        self._process.send_signal(number)
        return self.ended()

    def kill(self) -> None:
        """End it without a chance to say so."""
        self._process.kill()

    def ended(self) -> dict[str, Any]:
        """Wait for its end, and return the file."""
        out, err = self._process.communicate(timeout=WAIT)
        self.said = out + err
        assert self._process.returncode == 0, self.said
        assert sorted(self._out.parent.glob("*")) == [self._out]  # nothing beside it
        document: dict[str, Any] = json.loads(self._out.read_text())
        return document


@contextlib.contextmanager
def recording(directory: Path, *arguments: str) -> Iterator[Recording]:
    """Record from here on."""
    directory.mkdir()
    command = [sys.executable, "-m", "meshrt", "timeline", str(directory / "out.json"), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("meshrt timeline: recording "), line
        yield Recording(process, directory / "out.json")


def spans(document: dict[str, Any], pid: int = 0) -> list[tuple[str, str]]:
    """Endpoint, and how it ended or what is missing, of one process or of all."""
    return [
        (event["args"]["endpoint"], event["args"].get("cut") or event["args"]["outcome"])
        for event in document["traceEvents"]
        if event["ph"] == "X" and pid in (0, event["pid"])
    ]


def test_ranks_that_wait_or_are_stopped_or_die_cost_the_others_nothing(tmp_path: Path) -> None:
    mesh = proc_mesh(hosts=2, gpus=2, post_mortem=False)
    relay: ActorMesh[Relay] = mesh.spawn("relay", Relay, str(tmp_path)).get(WAIT)
    pids = relay.pid.call().get(WAIT).values()
    dying = proc_mesh(n=1).spawn("dying", Relay, str(tmp_path)).get(WAIT)
    dying_pid = dying.pid.call_one().get(WAIT)
    before = relay.slice(hosts=0, gpus=0).wait_for.call_one("go")
    wait_until(lambda: (tmp_path / "go.0").exists())
    ever = [relay.slice(hosts=1, gpus=1).beside.call_one("ever") for _ in range(2)]
    with recording(tmp_path / "out") as command:
        (tmp_path / "go").touch()
        before.get(WAIT)
        relay.slice(hosts=0, gpus=0).ask.call_one(relay.slice(hosts=0, gpus=1)).get(WAIT)
        with pytest.raises(LookupError):
            relay.slice(hosts=0, gpus=1).fail.call_one().get(WAIT)
        assert relay.slice(hosts=0, gpus=0).hooked.call_one().get(WAIT) == 3
        later = proc_mesh(n=1).spawn("later", Relay, str(tmp_path)).get(WAIT)
        wait_until(lambda: later.hooked.call_one().get(WAIT) == 3, WAIT)
        later_pid = later.pid.call_one().get(WAIT)
        os.kill(dying_pid, signal.SIGKILL)
        with pytest.raises(SupervisionError):
            dying.leaf.call_one().get(WAIT)
        with paused(pids[2]):
            document = command.end(signal.SIGTERM)
    assert ("wait_for", "began before the recording") in spans(document, pids[0])
    assert ("ask", "returned") in spans(document, pids[0])
    assert spans(document, later_pid)[-1] == ("pid", "returned")
    assert spans(document, pids[1]) == [("leaf", "returned"), ("fail", "raised LookupError")]
    cut = "began before the recording, and had not ended when it was last seen"
    assert spans(document, pids[3]) == [("beside", cut)] * 2
    events = document["traceEvents"]
    assert len({event["tid"] for event in events if event["ph"] == "X" and event["pid"] == pids[3]}) == 2
    arrows = {(event["ph"], event["id"]): event for event in events if event["ph"] in "sf"}
    ways = [(arrows["s", number], arrows["f", number]) for ph, number in arrows if ph == "s"]
    assert all(begin["ts"] <= end["ts"] for begin, end in ways)
    # From rank to rank, and from the script to all that it has called.
    assert [(begin["pid"], end["pid"]) for begin, end in ways].count((pids[0], pids[1])) == 1
    assert {end["pid"] for begin, end in ways if begin["pid"] == os.getpid()} >= {pids[0], pids[1], later_pid}
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names[os.getpid()].startswith("script ")
    waited = spans(document, os.getpid())
    assert ("ask", "answered") in waited and ("wait_for", "began before the recording") in waited
    assert waited.count(("beside", cut)) == 2, "what the script waits for all the time"
    assert names[pids[1]].endswith("rank 1 (hosts=0, gpus=1)")
    # The last word of each is why it has said no more.
    reasons = sorted(document["otherData"]["without"].values())
    assert len(reasons) == 2
    assert "stopped by a signal" in reasons[0]
    assert reasons[1] == "was killed by SIGKILL"
    assert "until Ctrl-C" in command.said
    # Nobody listens any more, on ranks that can be asked.
    wait_until(lambda: relay.slice(hosts=0).hooked.call().get(WAIT).values() == [0, 0], WAIT)
    assert not any(call.done() for call in ever)


def test_the_program_ends_and_others_begin(tmp_path: Path) -> None:
    # The first line that it reads makes a mesh that is recorded as well, the second one ends it.
    code = f"""
from meshrt import proc_mesh
from tests.support.relays import Relay
relay = proc_mesh(n=2).spawn('relay', Relay, {str(tmp_path)!r}).get()
print('up', flush=True)
input()
late = proc_mesh(n=1).spawn('late', Relay, '').get()
late.leaf.call().get()
"""
    with another_program(code) as other, recording(tmp_path / "out", str(other.pid), "--seconds", "600") as command:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "up\n"
        other.communicate("\n", timeout=WAIT)
        document = command.ended()
    assert "until the program ended" in command.said
    assert document["otherData"]["pid"] == other.pid


@pytest.mark.slow
def test_no_file_and_no_harm(tmp_path: Path) -> None:
    relay = proc_mesh(n=2).spawn("relay", Relay, str(tmp_path)).get(WAIT)
    command = ("-m", "meshrt", "timeline")
    for arguments, code, problem in [
        ((str(tmp_path),), 2, "is a directory"),
        ((str(tmp_path / "none" / "out.json"),), 2, f"there is no directory {tmp_path / 'none'}"),
        (
            (str(tmp_path / "out.json"), "77"),
            2,
            "PID 77 is not a meshrt program; name one by its id or its pid: ",
        ),
        ((str(tmp_path / "out.json"), "--ranks", "ranks(7)"), 2, "expected 0 to 1"),
        ((str(tmp_path / "out.json"), "--ranks", "stopped"), 2, "this selects no rank"),
        ((str(tmp_path / "out.json"), "--seconds", "0"), 2, "not a valid number of seconds above 0"),
    ]:
        done = run_python(*command, *arguments)
        assert (done.returncode, problem in done.stderr) == (code, True)
    full = subprocess.run(
        [sys.executable, *command, str(tmp_path / "out.json"), "--seconds", "0.1"],
        capture_output=True, text=True, check=False, env=environment(), timeout=WAIT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)),
    )  # fmt: skip
    assert full.returncode == 1
    assert "out.json cannot be written: File too large" in full.stderr
    assert list(tmp_path.glob("*")) == []
    with recording(tmp_path / "running", "--ranks", "running & ranks(1)") as command_of_one:
        relay.leaf.call().get(WAIT)
        document = command_of_one.end()
    assert " of 1 rank in" in command_of_one.said and ("leaf", "returned") in spans(document)
    shutil.rmtree(tmp_path / "running")
    with recording(tmp_path / "killed") as killed:
        assert relay.hooked.call().get(WAIT).values() == [3, 3]
        killed.kill()
    assert list((tmp_path / "killed").glob("*")) == []
    wait_until(lambda: relay.hooked.call().get(WAIT).values() == [0, 0], WAIT)
