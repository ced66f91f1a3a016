"""What faulthandler writes, read back."""

from __future__ import annotations

import faulthandler
import tempfile
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import meshrt
from meshrt.inspect.faults import SOURCE, FaultThread, parse, records_of
from meshrt.inspect.records import StackFrame

RUNTIME = str(Path(meshrt.__file__).parent / "actor" / "mailbox.py")
DEBUGGER = str(Path(meshrt.__file__).parent / "debug" / "console.py")
THREADING = threading.__file__

DUMP = f"""Thread 0x00007f96aba986c0 [loader] (most recent call first):
  File "/home/me/load.py", line 7 in load
  File "{THREADING}", line 982 in run

Thread 0x00007f96abb986c0 (most recent call first):
  File "{THREADING}", line 320 in wait
  File "{RUNTIME}", line 153 in _run

Current thread 0x00007f96ac2996c0 (most recent call first):
  File "/home/me/a (b), line 3 in c.py", line 30 in <lambda>
  File "/home/me/train.py", line ??? in train
  File "{RUNTIME}", line 98 in serve
  File "/usr/bin/launch.py", line 1 in <module>
"""


def test_a_dump() -> None:
    loader, hidden, main = parse(DUMP)
    assert loader == FaultThread(
        "0x00007f96aba986c0", "loader", [(THREADING, 982, "run"), ("/home/me/load.py", 7, "load")]
    )
    assert hidden.frames[-1] == (THREADING, 320, "wait")
    assert [frame[1:] for frame in main.frames] == [
        (1, "<module>"),
        (98, "serve"),
        (0, "train"),
        (30, "<lambda>"),
    ]
    assert main.frames[-1][0] == "/home/me/a (b), line 3 in c.py"


def test_the_main_thread_is_that_of_the_first_actor() -> None:
    main, loader = records_of(DUMP)
    assert (main.kind, main.name, main.state, main.source) == ("actor", "MainThread", "busy", SOURCE)
    assert [frame.function for frame in main.frames if not frame.hidden] == ["<module>", "train", "<lambda>"]
    assert (loader.kind, loader.name) == ("thread", "loader")
    assert [frame.function for frame in loader.frames] == ["load"]


def test_verbose_keeps_the_runtime() -> None:
    main, _ = records_of(DUMP, verbose=True)
    assert [(frame.function, frame.hidden) for frame in main.frames] == [
        ("<module>", False),
        ("serve", True),
        ("train", False),
        ("<lambda>", False),
    ]


def test_a_thread_at_a_breakpoint() -> None:
    text = (
        "Thread 0x1 (most recent call first):\n"
        f'  File "{THREADING}", line 1 in wait\n  File "{DEBUGGER}", line 2 in readline\n'
        '  File "/home/me/train.py", line 3 in step\n'
    )
    (record,) = records_of(text)
    assert record.state == "stopped" and record.frames == [StackFrame("/home/me/train.py", 3, "step")]


def test_only_the_first_of_two_dumps() -> None:
    assert parse(DUMP + "\n" + DUMP) == parse(DUMP)


def test_what_it_really_writes() -> None:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        threads = parse(file.read())
    assert threads[-1].frames[-1][0] == __file__ and threads[-1].frames[-1][2] == "test_what_it_really_writes"


@given(st.text(), st.integers(0, len(DUMP)))
def test_any_text_can_be_read(noise: str, cut: int) -> None:
    parse(noise)
    records_of(DUMP[:cut] + noise + DUMP[cut:])
