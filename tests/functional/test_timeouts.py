"""A rank is stopped while others wait for it in a collective of a real torch, for longer than their time-out."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

# Without loading it: that takes seconds.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

#: The time-out of the process group, and for how much longer ranks wait.
_LIMIT, _BEYOND = 4, 2
_SCRIPT = f"""\
import os, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=timedelta(seconds={_LIMIT}))
rank, loss = dist.get_rank(), torch.ones(1)
dist.all_reduce(loss)
if rank == 0:
    breakpoint()
while rank and not os.path.exists(sys.argv[1] + "-go"):
    time.sleep(0.02)
open(sys.argv[1] + f"-{{rank}}", "w").close()
dist.all_reduce(loss)
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
while backend.options._timeout != timedelta(seconds={_LIMIT}):  # the others are told a moment later
    time.sleep(0.02)
os.write(1, f"trained {{rank}} {{loss.item()}}\\n".encode())  # in one piece: the ranks have one output
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_rank_that_comes_to_it_later_waits_until_the_other_one_goes_on(tmp_path: Path) -> None:
    script, gate = tmp_path / "train.py", tmp_path / "at"
    script.write_text(_SCRIPT)
    command = [sys.executable, "-m", "meshrt", "run", "-n", "2", str(script), str(gate)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as program:

        def debug(*lines: str) -> str:
            words = [word for line in lines for word in ("-c", line)]
            return run_python("-m", "meshrt.debug", "--pid", str(program.pid), *words).stdout

        try:
            wait_until(lambda: "stopped: rank 0" in debug("wait main ranks(0) 20"), 90, "rank 0 is stopped")
            shown = debug("attach main 0", "detach")
            assert "gloo, the default process group: ranks that already waited when this one stopped " in shown
            assert "; later waits last until no rank is stopped\n" in shown
            Path(f"{gate}-go").touch()
            wait_until(Path(f"{gate}-1").exists, 20)
            time.sleep(_LIMIT + _BEYOND)  # nothing shows that it still waits
            assert "rank 0 of main: resumed" in debug("continue")
            out, err = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == 0, err
    assert sorted(out.splitlines()) == ["trained 0 4.0", "trained 1 4.0"]
