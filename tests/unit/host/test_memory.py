"""What the kernel tells of the work of a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from meshrt.hooks.measured import ProcessFacts
from meshrt.host import osutil
from meshrt.host.memory import work


def test_the_work_of_a_process_whatever_its_name_is() -> None:
    tick = 2 / os.sysconf("SC_CLK_TCK")
    name = threading.current_thread().name[:15]
    osutil.set_name("a) R 1 (b")
    try:
        begun, before = time.monotonic(), time.process_time()
        while time.process_time() < before + 5 * tick:
            pass
        before = time.process_time()
        found = work(os.getpid())
        after = time.process_time()
    finally:
        osutil.set_name(name)
    assert before - tick <= (found.cpu or 0) <= after + tick
    assert begun < (found.at or 0) <= time.monotonic()
    assert (found.kernel, found.threads) == ("R", len(os.listdir("/proc/self/task")))


def test_a_process_that_has_ended_does_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert work(ended.pid) == ProcessFacts()
