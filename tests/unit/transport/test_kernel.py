from __future__ import annotations

import os
import subprocess
import sys

from meshrt.transport.kernel import run_delays
from tests.support.waiting import wait_until

SPIN = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"


def test_threads_that_share_a_processor_wait_for_it() -> None:
    script = SPIN % min(os.sched_getaffinity(0))
    with (
        subprocess.Popen([sys.executable, "-S", "-c", script]) as one,
        subprocess.Popen([sys.executable, "-S", "-c", script]) as other,
    ):
        try:
            wait_until(lambda: min(run_delays(one.pid)[one.pid], run_delays(other.pid)[other.pid]) > 10_000_000, 30)
        finally:
            one.kill()
            other.kill()


def test_a_process_that_has_ended_has_no_threads() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        pass
    assert run_delays(ended.pid) == {}
