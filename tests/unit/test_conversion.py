"""Threads that convert to classes for the first time at once: without turns the interpreter crashes."""

from __future__ import annotations

import msgspec
import pytest

from meshrt.conversion import convert
from tests.support.programs import run_python

#: Many rounds: each has new classes, of which two threads need the same one at the same time.
RACE = """
import sys, threading
import msgspec
from meshrt.conversion import convert

sys.setswitchinterval(1e-6)
for number in range(200):

    def made(name, **fields):
        found = msgspec.defstruct(f"{name}{number}", list(fields.items()), namespace={"__module__": "__main__"})
        return globals().setdefault(f"{name}{number}", found)

    texts = {f"field{each}": "list[int | None | str]" for each in range(20)}
    middle = made("Middle", first=made("Inner", **texts), second=made("Other", **texts), third="int")
    outer = [made(f"Outer{letter}", middle=middle) for letter in "ab"]
    inner = {f"field{each}": [1, None, "x"] for each in range(20)}
    plain = {"middle": {"first": inner, "second": inner, "third": 3}}
    begin = threading.Barrier(2)

    def read(kind):
        begin.wait()
        assert convert(plain, kind).middle.third == 3

    threads = [threading.Thread(target=read, args=[kind]) for kind in outer]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_two_threads_convert_to_a_class_for_the_first_time() -> None:
    done = run_python("-c", RACE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


class Point(msgspec.Struct):
    x: int
    data: bytes = b""


def test_what_is_not_valid_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
            convert({"x": "no"}, Point)
    assert convert({"x": 1, "data": b"1"}, Point, [bytes]) == Point(1, b"1")
