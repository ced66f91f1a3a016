"""``meshrt attach PID``: processes that have never heard of meshrt become ranks (Python 3.14 and later)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import environment, run_python
from tests.support.pythons import FIRST, NOBODY, base_of, found_python, runs_for_others, why_none
from tests.support.waiting import wait_until

_SECONDS = 90
TARGET = """\
import os, sys, time
import threading
print("up", flush=True)
exec(sys.argv[2])
total = 0
while not os.path.exists(sys.argv[1]):
    total += 1
    time.sleep(0.02)
print("over", flush=True)
"""

needs_python = pytest.mark.skipif(not found_python(), reason=why_none())


class Processes:
    """Processes of a Python without packages, and the commands that are typed beside them."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self._folder = folder
        self.runtime = runtime
        self.env = environment(MESHRT_RUNTIME_DIR=runtime, MESHRT_RUNS=str(folder / "runs"))
        self._stop = folder / "stop"
        self._processes: list[subprocess.Popen[str]] = []
        (folder / "target.py").write_text(TARGET)

    def start(self, begins: str = "", *options: str, **variables: str) -> subprocess.Popen[str]:
        """Start one, which runs ``begins`` first."""
        bare = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MESHRT_"))}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [base_of(found_python()), "-S", *options, str(self._folder / "target.py"), str(self._stop), begins],
            env={**bare, **variables},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    def meshrt(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [found_python(), "-m", "meshrt", *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=_SECONDS)
        print(done.stdout, done.stderr)
        return done

    def attach(self, *words: str | int) -> subprocess.CompletedProcess[str]:
        return self.meshrt("attach", *map(str, words))

    def ended(self) -> list[tuple[int, str, str]]:
        """Have them end."""
        self._stop.touch()
        told = [process.communicate(timeout=_SECONDS) for process in self._processes]
        return [(process.returncode, *texts) for process, texts in zip(self._processes, told, strict=True)]

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()
        wait_until(lambda: not os.listdir(self.runtime), _SECONDS, "the end of the program")


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as runtime:
        made = Processes(tmp_path, runtime)
        try:
            yield made
        finally:
            made.close()


@needs_python
def test_two_processes_become_ranks_and_stay_what_they_were(processes: Processes) -> None:
    pids = [processes.start().pid for _ in range(2)]
    done = processes.attach(*pids, "--name", "trainer", "--mesh", "dp=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "".join(f"PID {pid} is rank {rank} of trainer\n" for rank, pid in enumerate(pids))
    (program,) = json.loads(processes.meshrt("ps", "-v", "--json").stdout)["programs"]
    assert [row["pid"] for row in program["rows"]] == pids
    stacks = processes.meshrt("where").stdout
    assert "2 ranks of trainer" in stacks and "target.py:8" in stacks and "meshrt" not in stacks
    text = processes.meshrt("p", "trainer", "--ranks", "dp=1", "(total > 0, sorted(n for n in dir() if 'mesh' in n))")
    assert text.stdout == "[1] (True, [])\n"
    processes.meshrt("interrupt", "trainer")
    wait_until(lambda: "2 stopped" in processes.meshrt("ps").stdout, _SECONDS, "both are stopped")
    processes.meshrt("continue")
    again = processes.attach(pids[1])
    assert again.returncode == 1 and "this process already belongs to a program" in again.stderr
    assert processes.ended() == [(0, "over\n", "")] * 2


@needs_python
def test_one_that_is_in_c_code_joins_when_it_comes_back(processes: Processes) -> None:
    """The command has gone by then; the program is started all the same, and nothing is left of the command."""
    pid = processes.start("time.sleep(6)").pid
    done = processes.attach(pid, "--timeout", "0.3")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"PID {pid} has run no Python code for 0.3 s because its main thread is in C code" in done.stderr
    assert "it joins as rank 0 when it runs Python code again" in done.stderr
    wait_until(lambda: "1: 1 running" in processes.meshrt("ps").stdout, _SECONDS, "it has joined")
    assert not list(Path(processes.runtime).glob("attach-*"))
    assert processes.ended() == [(0, "over\n", "")]


@needs_python
def test_what_goes_wrong_in_the_process_is_told_by_the_command_alone(processes: Processes) -> None:
    other = processes.start("import types; sys.modules['meshrt'] = types.ModuleType('meshrt')")
    broken = processes.start("sys.modules['msgspec'] = None")
    done = processes.attach(other.pid)
    assert (
        done.returncode == 1
        and "it has loaded meshrt of another project, but the command belongs to meshrt" in done.stderr
    )
    done = processes.attach(broken.pid)
    assert (
        done.returncode == 1
        and "its Python cannot load msgspec" in done.stderr
        and "needs msgpack, msgspec" in done.stderr
    )
    assert processes.ended() == [(0, "over\n", "")] * 2


@needs_python
def test_what_is_refused_before_anything_is_changed(processes: Processes) -> None:
    well = processes.start()
    off = [processes.start("", "-X", "disable-remote-debug"), processes.start("", PYTHON_DISABLE_REMOTE_DEBUG="1")]
    for process in off:
        done = processes.attach(well.pid, process.pid)
        assert done.returncode == 1 and f"PID {process.pid} has disabled remote debugging" in done.stderr
    with subprocess.Popen(["sleep", "100"]) as sleep:
        done = processes.attach(well.pid, sleep.pid)
        assert done.returncode == 2 and f"PID {sleep.pid} is not a Python process" in done.stderr
        sleep.kill()
    assert processes.attach(sleep.pid).stderr.startswith(f"meshrt attach: PID {sleep.pid}: there is no such process")
    assert "is given twice" in processes.attach(well.pid, well.pid).stderr
    assert "--mesh dp=2 has 2 ranks, but the number of PIDs is 1" in processes.attach(well.pid, "--mesh", "dp=2").stderr
    shell = f'exec "{found_python()}" -m meshrt attach $$'
    done = subprocess.run(["sh", "-c", shell], env=processes.env, capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 2 and "is this command" in done.stderr
    assert "no meshrt program" in processes.meshrt("ps").stdout
    assert processes.ended() == [(0, "over\n", "")] * 3


def older_python() -> str:
    """Return a Python before 3.14; "": none is found."""
    if sys.version_info < FIRST:
        return sys.executable
    found = filter(None, (shutil.which(f"python3.{minor}") for minor in (13, 12, 11)))
    # One on PATH may be a stand-in for a version that is chosen elsewhere.
    return next((each for each in found if subprocess.run([each, "-c", ""], capture_output=True).returncode == 0), "")


@needs_python
@pytest.mark.skipif(not older_python(), reason="no Python 3.11, 3.12 or 3.13 on PATH")
def test_another_version(processes: Processes) -> None:
    with subprocess.Popen([older_python(), "-c", "input()"], stdin=subprocess.PIPE) as older:
        wait_until(lambda: "python" in os.readlink(f"/proc/{older.pid}/exe"), _SECONDS, "it is Python")
        done = processes.attach(older.pid)
        assert done.returncode == 1
        assert f"PID {older.pid} runs Python 3.1" in done.stderr and "`meshrt where --pid PID`" in done.stderr
        older.communicate(b"\n")


@needs_python
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_of_another_user(processes: Processes) -> None:
    code = f"import os; os.setgid({NOBODY}); os.setuid({NOBODY}); print('up', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([base_of(found_python()), "-S", "-c", code], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "up\n"
        done = processes.attach(other.pid)
        assert done.returncode == 1 and f"PID {other.pid} belongs to the user " in done.stderr
        other.communicate("\n")


@needs_python
@pytest.mark.skipif(not runs_for_others(found_python()), reason="no other user can run that Python")
def test_without_the_right_to_look_into_it(processes: Processes) -> None:
    """A process that has changed its user belongs to root, as far as the kernel lets others look into it."""
    code = f"import os; os.setgid({NOBODY}); os.setuid({NOBODY}); print('up', flush=True); input()"
    pipe = subprocess.PIPE
    with subprocess.Popen([base_of(found_python()), "-S", "-c", code], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "up\n"
        command = [found_python(), "-m", "meshrt", "attach", str(other.pid)]
        env = environment(PYTHONDONTWRITEBYTECODE="1")
        del env["MESHRT_RUNTIME_DIR"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_SECONDS, user=NOBODY)
        assert done.returncode == 1
        assert f"access to PID {other.pid} requires CAP_SYS_PTRACE" in done.stderr
        other.communicate("\n")


@pytest.mark.skipif(sys.version_info >= FIRST, reason="for earlier versions of Python")
def test_before_3_14_it_says_what_to_do_instead() -> None:
    done = run_python("-m", "meshrt", "attach", "4711")
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    for word in ("Python 3.14", "`meshrt run SCRIPT`", "`meshrt.join()`", "`meshrt where --pid PID`"):
        assert word in done.stderr
