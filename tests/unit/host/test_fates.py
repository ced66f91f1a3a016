"""How a rank has ended, from its wait status and what is known of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from meshrt.host.child import Birth, Child
from meshrt.host.fates import end_of, fate_of
from meshrt.host.osutil import status_of
from meshrt.host.output import RankLog
from meshrt.wire.addresses import HostAddress
from meshrt.wire.handshake import Secret
from meshrt.wire.tree import Leaving

#: Wait statuses.
OK, THREE, TERM, KILL = 0, 3 << 8, signal.SIGTERM, signal.SIGKILL
SPAN = (1_000, 2_000)


@pytest.fixture
def child() -> Iterator[Child]:
    unused: Any = None
    address = HostAddress(0, 1, b"/tmp")
    birth = Birth("m", "mesh", 3, ["n"], [4], {}, "run", address, Secret(), "host", [], 0, -1, "", "", [])
    made = Child(birth, unused, RankLog(Path(), print), [], os.memfd_create("fault"), "", unused)
    made.pid = 7
    yield made
    os.close(made.fault_file)


@pytest.mark.parametrize(
    ("status", "joined", "stopping", "leaving", "kind"),
    [
        (OK, False, False, None, "died"),  # nothing has asked it to end
        (OK, False, True, None, "stopped"),
        (THREE, False, True, None, "died"),
        (TERM, False, True, None, "stopped"),
        (KILL, False, True, None, "died"),
        (OK, True, False, None, "stopped"),  # its script has ended
        (THREE, True, False, None, "died"),
        (THREE, True, False, Leaving(5, reported=False), "died"),
        (THREE, True, False, Leaving(5, reported=True), "stopped"),
        (KILL, True, False, Leaving(5, reported=True), "died"),  # and not by the exception
        (None, True, False, None, "died"),
    ],
)
def test_kinds(
    child: Child, status: int | None, joined: bool, stopping: bool, leaving: Leaving | None, kind: str
) -> None:
    child.joined, child.leaving = joined, leaving
    fate = fate_of(child, status, SPAN, stopping=stopping)
    assert (fate.kind, fate.host, fate.pid) == (kind, "host", 7)
    assert fate.exit_code == {OK: 0, THREE: 3}.get(-1 if status is None else status)
    assert fate.signal == (status if status in (TERM, KILL) else None)


def test_a_rank_that_the_agent_had_to_kill_was_stopped(child: Child) -> None:
    child.killed = True
    assert fate_of(child, KILL, SPAN, stopping=True).kind == "stopped"


def test_the_end_begins_with_that_of_the_script(child: Child) -> None:
    """Connections close while the interpreter ends, which peers notice."""
    child.joined, child.leaving = True, Leaving(5, reported=False)
    fate = fate_of(child, THREE, SPAN, stopping=False)
    assert (fate.low, fate.high) == (5, 2_000)
    assert str(fate) == "exited with code 3"


def test_where_nothing_is_known_of_the_status(child: Child) -> None:
    child.joined = True
    assert str(fate_of(child, None, SPAN, stopping=False)) == "has ended"


def test_the_link_closes_first(child: Child) -> None:
    child.closed = (10, 20)
    assert end_of(child, (15, 30)) == (10, 20)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", THREE), ("import os; os.kill(os.getpid(), 9)", KILL)]
)
def test_the_status_of_a_process_of_another_parent(code: str, status: int) -> None:
    """As long as that has not reaped it."""
    parent = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {code!r}])
os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(child.pid, flush=True)
sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as made:
        assert made.stdin is not None and made.stdout is not None
        pid = int(made.stdout.readline())
        pidfd = os.pidfd_open(pid)
        try:
            assert status_of(pidfd, pid) == status
        finally:
            os.close(pidfd)
            made.communicate("\n")
