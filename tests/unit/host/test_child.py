"""What a host agent knows of a rank: what faulthandler has written for it, and what it was born with."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from meshrt.host.child import Birth, Child
from meshrt.wire.addresses import HostAddress
from meshrt.wire.handshake import Secret

DUMP = "Current thread 0x1 (most recent call first):\n" + '  File "x.py", line 1 in f\n' * 1500
CRASH = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n"
#: Bytes of memory that a file may keep which was read to its end.
PAGES = 4 * os.sysconf("SC_PAGESIZE")


@pytest.fixture
def child() -> Iterator[Child]:
    unused: Any = None
    made = Child(unused, unused, unused, [], os.memfd_create("fault"), "", unused)
    yield made
    os.close(made.fault_file)


def look(child: Child) -> str:
    """Have a dump written, and take it, as for a rank that does not answer."""
    start = child.fault_size()
    os.write(child.fault_file, DUMP.encode())
    return child.take_dump(start)


def memory(child: Child) -> int:
    return os.fstat(child.fault_file).st_blocks * 512


def test_dumps_that_were_taken_cost_no_memory(child: Child) -> None:
    for _ in range(40):
        assert look(child) == DUMP
        assert memory(child) <= PAGES
    assert child.fault_size() == 40 * len(DUMP), "a writer goes on where it was"


def test_a_crash_behind_them_is_found(child: Child) -> None:
    look(child)
    os.write(child.fault_file, CRASH.encode())
    assert child.crash_text() == CRASH
    assert child.take_dump(child.fault_size() - len(CRASH)) == ""
    assert child.crash_text() == CRASH


def test_what_cannot_be_read_is_said(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    assert look(child) == "(its stacks cannot be read: Input/output error)"
    assert child.crash_text() == ""
    assert child.hint.endswith("cannot be read: Input/output error")


def test_a_dump_that_is_taken_late_takes_nothing_from_the_next_one(child: Child) -> None:
    start = child.fault_size()
    os.write(child.fault_file, DUMP.encode())
    assert look(child) == DUMP
    os.write(child.fault_file, CRASH.encode())
    child.take_dump(start)
    assert child.crash_text() == CRASH


def test_a_dump_that_two_have_asked_for_is_read_by_both(child: Child) -> None:
    start = child.fault_size()
    os.write(child.fault_file, DUMP.encode())
    assert child.take_dump(start) == child.take_dump(start) == DUMP
    again = child.fault_size()
    os.write(child.fault_file, DUMP.encode())
    assert child.take_dump(start) == DUMP, "nothing of what was read before"
    assert child.take_dump(again) == DUMP


def test_no_text_of_it_shows_the_secret() -> None:
    plain: Any = bytes(range(65, 97))  # as it comes in a message
    secret = Secret(plain)
    env = {"API_TOKEN": "hidden"}
    births = [
        Birth("m", "mesh", 0, [], [], env, "run", HostAddress(1, 1, b"/d"), each, "host", [], 2, -1, "/r", "", [])
        for each in (plain, secret)
    ]
    for text in (repr(births), str(births[0]), f"{secret} {secret!r} {secret!s}", str([secret])):
        assert "ABCDEF" not in text and secret.hex() not in text and "hidden" not in text
    assert str([secret]) == "[Secret(***)]"
