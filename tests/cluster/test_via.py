"""``--via`` over ssh: tools on one machine, and on another one a program with the only copy of its source."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.sshd import CLIENT, sshd, why_no_ssh
from tests.dap.ide import Ide
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_no_ssh()), reason=why_no_ssh())

#: In /tmp of the machine where the program runs: no other machine has this file.
PLACE = "/tmp/home/only_there.py"
SCRIPT = """\
import socket, time
from meshrt import Actor, endpoint, proc_mesh

class Worker(Actor):
    @endpoint
    def work(self):
        self.host = socket.gethostname()
        count = 0
        while True:
            time.sleep(0.02)
            count = self.after(count)

    def after(self, count):
        return count + 1  # the next

proc_mesh(gpus=2).spawn("worker", Worker).work.call().get()
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if text in line)


class Via:
    """Commands of meshrt on the first machine, for the program on the second one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        first, second = cluster.machines
        self._there = second
        laid = second.run("sh", "-c", f"cat > {PLACE} <<'END'\n{SCRIPT}END")
        assert laid.returncode == 0, laid.stderr
        self._begun = first.command("env", "HOME=/tmp/home", sys.executable, "-m", "meshrt")
        self._via = ["--via", shlex.join(["ssh", "-q", *CLIENT, second.name])]
        self.program = second.start(sys.executable, PLACE, stdin=subprocess.DEVNULL)
        wait_until(lambda: "2/2  all" in self.meshrt("where"), 60, "working ranks")

    def end(self) -> None:
        """End the program, which is a child of the process that has entered the machine."""
        (script,) = (pid for pid, line in self._there.processes().items() if line.endswith(f"{sys.executable} {PLACE}"))
        self._there.kill(script)
        self.program.wait(30)

    def command(self, *words: str) -> list[str]:
        """Return the command that runs a command of meshrt."""
        return [*self._begun, *words, *self._via]

    def meshrt(self, *words: str) -> str:
        """Run a command of meshrt; returns what it prints."""
        done = self._cluster.run(self.command(*words), {})
        return done.stdout + done.stderr


@pytest.fixture
def via(cluster: Cluster) -> Iterator[Via]:
    with sshd(cluster.machines):
        made = Via(cluster)
        yield made
        made.end()


@pytest.mark.nightly
def test_tools_that_look(via: Via) -> None:
    for words, expected in {
        ("top", "--once"): ["gpus=1", "2 ranks: 2 "],
        ("top", "--once", "--json"): ['"host": "n2"', '"actor": "worker"'],
        ("memory",): ["worker", "MiB", "2 ranks: "],
        ("memory", "--json"): ['"n2"'],
    }.items():
        told = via.meshrt(*words)
        assert [each for each in expected if each not in told] == [], (words, told)


@pytest.mark.slow
def test_the_debugger_stops_ranks_at_a_line_of_a_file_that_is_only_there(via: Via) -> None:
    lines = [f"tbreak worker only_there.py:{line_of('the next')}", "wait worker 30", "p worker self.host"]
    lines += ["attach worker 1", "l", "c", "continue"]
    told = via.meshrt("debug", *(word for line in lines for word in ("-c", line)))
    assert "[0-1] 'n2'" in told, told
    assert "return count + 1  # the next" in told, told
    wait_until(lambda: "stopped" not in via.meshrt("where"), 30, "ranks that run again")
    assert via.program.poll() is None


@pytest.mark.nightly
@pytest.mark.parametrize("view", ["sessions", "threads"])
def test_an_ide_shows_the_source_that_its_machine_does_not_have(via: Via, view: str) -> None:
    pytest.importorskip("debugpy", reason="not installed: debugpy (pip install --group dap)")
    ide = Ide(via.command("dap", "--stdio"), {"meshView": view})
    ide.breakpoints[PLACE] = [{"line": line_of("the next")}]
    with ide:
        session = ide.stopped(2, 60)[0] if view == "sessions" else ide.stopped(1, 60)[0]
        top, caller = session.stack()[:2]
        assert (top["line"], top["source"]["path"], caller["name"]) == (line_of("the next"), PLACE, "work")
        assert session.evaluate("self.host") == "'n2'"
        source = top["source"]
        text = session.client.request("source", source=source, sourceReference=source["sourceReference"])["content"]
        assert text == SCRIPT
        # A breakpoint in what is shown, as it is shown, in place of the first one.
        body = session.client.request(
            "setBreakpoints", source=source, breakpoints=[{"line": line_of("self.after(count)")}]
        )
        assert [each["verified"] for each in body["breakpoints"]] == [True], body
        assert body["breakpoints"][0]["source"]["sourceReference"] == source["sourceReference"]
        session.resume()
        ide.wait_for(lambda: session.stop is not None, "the second breakpoint")
        assert session.stack()[0]["line"] == line_of("self.after(count)")
        ide.disconnect()
    assert via.program.poll() is None
