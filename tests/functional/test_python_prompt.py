"""A program that is typed, or pasted, at the prompt of Python."""

from __future__ import annotations

import re
import sys

import pexpect
import pytest

from tests.support.programs import environment

FAILING = 'raise KeyError("from the program")'
PROGRAM = f"""\
from meshrt import Actor, current_rank, endpoint, proc_mesh
OFFSET = 1000
class Adder(Actor):
    @endpoint
    def add(self, value):
        return OFFSET + value + current_rank().rank
    @endpoint
    def fail(self):
        {FAILING}

adder = proc_mesh(n=2).spawn("adder", Adder)
print("VALUES", adder.add.call(6).get(30).values())
"""
EXPECTED = "VALUES [1006, 1007]"


def test_typed_at_the_prompt() -> None:
    child = pexpect.spawn(
        sys.executable, ["-q"], env=environment(TERM="dumb", PYTHON_BASIC_REPL="1"), encoding="utf-8", timeout=30
    )
    try:
        for line in PROGRAM.splitlines():
            child.expect_exact([">>> ", "... "])
            child.sendline(line)
        child.expect_exact(EXPECTED)
        child.expect_exact(">>> ")
        child.sendline("adder.fail.call().get(30)")
        child.expect_exact("KeyError: 'from the program'")
        child.expect(r'File "<[^"\n]+>[-\d]*", line \d+, in fail\r\n +' + re.escape(FAILING) + "\r\n")
        child.expect_exact(">>> ")
        child.sendline("exit()")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
    finally:
        child.close(force=True)


@pytest.mark.skipif(sys.version_info < (3, 13), reason="the prompt that edits several lines is new in 3.13")
def test_pasted_at_the_prompt() -> None:
    env = environment(TERM="xterm", NO_COLOR="1")
    child = pexpect.spawn(sys.executable, ["-q"], env=env, encoding="utf-8", timeout=30, dimensions=(40, 150))
    try:
        for block in (*PROGRAM.split("\n\n"), "adder.fail.call().get(30)"):
            child.expect_exact(">>> ")
            child.send(f"\x1b[200~{block.strip()}\n\x1b[201~".replace("\n", "\r"))
            child.expect_exact(block.strip()[-20:])  # it is pasted: what follows is typed
            child.expect_exact("\x1b[?25h")  # the cursor is shown again
            child.send("\r")
        child.expect_exact("KeyError: 'from the program'")
        child.expect(r'File "<python-input-\d+>", line \d+, in fail\r\n +' + re.escape(FAILING) + "\r\n")
        child.expect_exact(">>> ")
        child.sendeof()
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
    finally:
        child.close(force=True)
