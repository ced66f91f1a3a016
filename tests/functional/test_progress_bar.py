"""The bar at a real terminal: it is below what is written, and nothing of it stays."""

from __future__ import annotations

import sys
from typing import Any

import pexpect
import pyte

from tests.support.programs import environment

PROGRAM = """
import os, sys, threading
from meshrt.mesh.terminal import Terminal

terminal = Terminal()
for done in range(1, 16):
    terminal.progress(done, 16)
    if done == 5:
        terminal.flush()
        print("is shown:", type(sys.stdout).__name__)
        kept = sys.stdout
    print(f"the script at {done}", flush=True)
    print(f"its error at {done}", file=sys.stderr)
    terminal.write(f"a rank at {done}\\n", err=bool(done % 2))
    terminal.flush()
    if not os.fork():
        print(f"a fork at {done}")
        sys.stdout.flush()
        os._exit(0)
    os.wait()
terminal.progress(16, 16)
terminal.close()
print("over:", type(sys.stdout).__name__, file=kept)
"""


def test_a_bar_is_below_all_that_is_written_and_goes_without_a_trace() -> None:
    child: Any = pexpect.spawn(
        sys.executable, ["-Wignore", "-c", PROGRAM], env=environment(TERM="xterm"), dimensions=(100, 80), timeout=30
    )
    screen = pyte.Screen(80, 100)
    stream = pyte.ByteStream(screen)
    shown = []
    while not child.expect([rb"(?s).+", pexpect.EOF]):
        for part in child.after.splitlines(keepends=True):
            stream.feed(part)
            shown += [line for line in screen.display if "ranks started" in line]
    child.close()
    assert child.exitstatus == 0
    lines = [line.rstrip() for line in screen.display if line.strip()]
    expected = []
    for done in range(1, 16):
        expected += ["is shown: _Above"] if done == 5 else []
        expected += [f"the script at {done}", f"its error at {done}", f"a rank at {done}", f"a fork at {done}"]
    assert lines == [*expected, "over: TextIOWrapper"]
    assert any(line.startswith("meshrt: 5/16 ranks started |") for line in shown)
