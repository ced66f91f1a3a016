"""What a process has at two moments."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from meshrt.testing.leaks import Footprint, explained, left_behind

kept: list[socket.socket] = []


def test_what_has_been_there_and_what_is_gone_is_not_left() -> None:
    before = Footprint.now()
    with socket.socket(), open(__file__):
        assert len(Footprint.now().beyond(before)) == 2
    assert left_behind(before, 0) == []


def test_what_ends_between_two_looks_is_not_left() -> None:
    before = Footprint(frozenset({"thread 1 main"}))
    looks = [Footprint(before.items | {"thread 2 more"}), before]
    assert left_behind(before, 20, lambda: looks.pop(0)) == [] and not looks


def test_a_descriptor_that_the_runtime_holds_is_no_leak_of_a_program_that_goes_on() -> None:
    class Link:
        __module__ = "meshrt.transport.link"

        def __init__(self) -> None:
            self.parts = [socket.socket()]

    before = Footprint.now()
    link = Link()
    (item,) = Footprint.now().beyond(before)
    assert Footprint.now().beyond(before, of_program=True) == []
    assert explained([item]).endswith(f"held by meshrt.transport.link.{Link.__qualname__}")
    kept.append(link.parts.pop())
    assert Footprint.now().beyond(before, of_program=True) == [item]
    assert explained([item]).endswith(f"held by {__name__}.kept")
    kept.pop().close()


def test_a_thread_of_the_runtime_is_no_leak_of_a_program_that_goes_on() -> None:
    end = threading.Event()
    before = Footprint.now()
    threads = [threading.Thread(target=end.wait, name=name) for name in ("meshrt-root", "loader")]
    for thread in threads:
        thread.start()
    try:
        (loader,) = Footprint.now().beyond(before, of_program=True)
        assert loader.endswith(" loader") and len(Footprint.now().beyond(before)) == 2
    finally:
        end.set()
        for thread in threads:
            thread.join()
    assert explained([loader]) == f"  {loader}"  # it has ended meanwhile


@pytest.mark.parametrize("marked", [True, False])
def test_an_agent_is_no_leak_of_a_program_that_goes_on_and_any_other_child_is(marked: bool) -> None:
    before = Footprint.now()
    code = "import subprocess; subprocess.run(['cat'])"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        env={**os.environ, **({"MESHRT_RUN": "x"} if marked else {})},
    )
    try:
        while not Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text():
            pass
        found = [each for each in Footprint.now().beyond(before, of_program=True) if each.startswith("process")]
        ranks = [each for each in found if each.endswith(f", below {child.pid}")]
        assert len(ranks) == 1 and len(found) == 1 + (not marked)
    finally:
        child.communicate()


def test_a_segment_of_another_process_is_not_this_ones() -> None:
    name = f"leaks-{os.getpid()}"
    code = f"import mmap; f = open('/dev/shm/{name}', 'r+b'); m = mmap.mmap(f.fileno(), 8); print(flush=True); input()"
    before = Footprint.now()
    reading, writing = os.pipe()
    Path("/dev/shm", name).write_bytes(bytes(8))
    try:
        (item,) = [each for each in Footprint.now().beyond(before) if each.startswith("segment")]
        assert item == f"segment /dev/shm/{name} (8 bytes)"
        # By a process in between that ends: it is no child of this one.
        with subprocess.Popen(
            ["sh", "-c", 'exec 3<&0; "$0" -c "$1" <&3 & exit', sys.executable, code],
            stdin=reading,
            stdout=subprocess.PIPE,
        ) as between:
            assert between.stdout is not None and between.stdout.readline() == b"\n"
            assert between.wait() == 0
            assert item not in Footprint.now().beyond(before)
            os.close(writing)
    finally:
        os.close(reading)
        Path("/dev/shm", name).unlink()


def test_the_null_device_is_a_leak_if_a_file_of_python_has_it() -> None:
    """The event loop and the runtime open it without one, to have a descriptor in reserve."""
    before = Footprint.now()
    number = os.open(os.devnull, os.O_RDONLY)
    try:
        assert Footprint.now().beyond(before) == [f"descriptor {number} -> {os.devnull}"]
        assert Footprint.now().beyond(before, of_program=True) == []
        with open(os.devnull) as file:
            assert Footprint.now().beyond(before, of_program=True) == [f"descriptor {file.fileno()} -> {os.devnull}"]
    finally:
        os.close(number)


def test_what_is_said_of_a_descriptor_opens_none() -> None:
    before = Footprint.now()
    with open(os.devnull) as file, socket.socket() as sock:
        explained([f"descriptor {each.fileno()} -> somewhere" for each in (file, sock)])
    assert left_behind(before, 20) == []  # a segment of another test may end meanwhile
