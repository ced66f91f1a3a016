"""The script forks, or uses multiprocessing, after it has made a mesh (C8): the child has none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.faults.watch import Program
from tests.support.footprint import marked_processes
from tests.support.waiting import wait_until

HEAD = """
    mesh = proc_mesh(n=2)
    victims = mesh.spawn("victim", Victim).get(20)
    def error_of(function):
        try:
            return repr(function())
        except BaseException as error:
            return type(error).__name__
"""
FORK = """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        errors = [error_of(f) for f in (victims.pid.call, mesh.stop, lambda: mesh.spawn("more", Victim))]
        os.write(write_end, json.dumps(errors).encode())
        {end}
    os.close(write_end)
    tell(errors=json.loads(os.read(read_end, 10000)))
    tell(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    tell(values=victims.echo.call(5).get(20).values())
"""
ENDS = {"sys.exit(3)": 3, "os._exit(4)": 4, "raise SystemExit": 0, "raise LookupError": 1}


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_child_has_no_mesh(end: str, tmp_path: Path) -> None:
    with Program(HEAD + FORK.format(end=end), tmp_path) as program:
        assert program.told("errors") == ["ForkedMeshError"] * 3
        assert program.told("code") == ENDS[end]
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


def test_a_forked_child_makes_a_program_of_its_own(tmp_path: Path) -> None:
    script = """
    pid = os.fork()
    if pid == 0:
        own = proc_mesh(n=2).spawn("victim", Victim)
        assert own.echo.call(6).get(20).values() == [6, 6]
        sys.exit(0)
    tell(code=os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    tell(values=victims.echo.call(5).get(20).values())
    """
    with Program(HEAD + script, tmp_path) as program:
        assert program.told("code") == 0, program.output
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


def test_a_child_that_outlives_the_script_keeps_nothing_alive(tmp_path: Path) -> None:
    """It has inherited the script's descriptors, and must not hide the end of the script from the agents."""
    script = """
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    tell(child=pid, ranks=victims.pid.call().get(20).values())
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with Program(HEAD + script, tmp_path) as program:
        child = program.told("child")
        program.ends()
        wait_until(lambda: marked_processes() == [child], 2.0)
        os.kill(child, signal.SIGKILL)
        wait_until(lambda: not marked_processes(), 2.0)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_beside_a_mesh(method: str, tmp_path: Path) -> None:
    script = f"""
    import multiprocessing, operator
    if __name__ == "__main__":
        with multiprocessing.get_context({method!r}).Pool(2) as pool:
            tell(pool=pool.map(operator.neg, range(5)))
        tell(values=victims.echo.call(5).get(20).values())
    """
    head = HEAD if method == "fork" else "    if __name__ == '__main__':\n" + HEAD.replace("\n    ", "\n        ")
    with Program(head + script, tmp_path) as program:
        assert program.told("pool") == [0, -1, -2, -3, -4]
        assert program.told("values") == [5, 5]
        assert program.ends() == 0


def test_subprocesses_inherit_nothing(tmp_path: Path) -> None:
    """No descriptor and no secret of the program reaches what the script, or a rank, executes."""
    script = """
    def look():
        import subprocess, sys  # in a rank, too
        code = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        return subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True).stdout
    os.set_inheritable(int(os.environ["TELL"]), False)
    tell(script=look(), rank=victims.slice(n=0).apply.call_one(look).get(20))
    """
    with Program(HEAD + script, tmp_path) as program:
        # Its three, and that of the listing itself.
        assert program.told("script").strip() == program.told("rank").strip() == "['0', '1', '2', '3']"
        assert program.ends() == 0
