"""A program may come from anywhere; its source is shown all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.debug.pty_harness import screen
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

WHOLE = """
from meshrt import Actor, current_rank, endpoint, proc_mesh

class Here(Actor):
    @endpoint
    def run(self):
        rank = current_rank().rank
        breakpoint()
        secret = rank + 40  # the line that is shown
        return secret

if True:
    mesh = proc_mesh(n=2).spawn("here", Here).get()
    print("values", mesh.run.call().get().values(), flush=True)
"""


@contextmanager
def program(
    *arguments: str, stdin: str | None = None, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    running = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**(env or {})),
        cwd=cwd,
    )
    try:
        if stdin is not None and running.stdin is not None:
            running.stdin.write(stdin)
            running.stdin.close()
            running.stdin = None
        yield running
    finally:
        running.kill()
        running.communicate()


def looked_at(running: subprocess.Popen[str], *, source: bool = True) -> None:
    """A person looks into rank 1 and lets everything go."""
    listed = ["ll"] if source else []
    commands = ["wait here 20", "attach here 1", *listed, "n", "p rank + 1", "n", "p secret", "detach", "continue"]
    arguments = [part for command in commands for part in ("-c", command)]
    for _ in range(400):  # the program publishes itself when its first mesh has started
        done = run_python("-m", "meshrt.debug", "--pid", str(running.pid), *arguments)
        if done.returncode != 2 or running.poll() is not None:
            break
    shown = done.stdout
    assert done.returncode == 0, shown + done.stderr
    if source:
        assert "secret = rank + 40  # the line that is shown" in shown
        assert "->\t" in shown
        assert "-> secret = rank + 40" in shown
    else:
        assert "secret = rank + 40" not in shown
    assert "\n2\n" in shown
    assert "\n41\n" in shown
    assert "2 ranks of here (0-1): resumed" in shown
    out, _ = running.communicate(timeout=20)
    assert "values [40, 41]" in out


@pytest.mark.slow
@pytest.mark.row("D6")
def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WHOLE)
    with program("script.py", cwd=tmp_path) as running:
        looked_at(running)


@pytest.mark.slow
def test_the_class_of_a_script_is_known_by_its_name(tmp_path: Path) -> None:
    """No module of a rank has it: it came by value."""
    path = tmp_path / "whole.py"
    path.write_text(f"{WHOLE}\n    import sys; sys.stdin.readline()\n")

    def debug(*lines: str) -> str:
        commands = [part for line in lines for part in ("-c", line)]
        done = run_python("-m", "meshrt.debug", "-p", str(running.pid), *commands)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with subprocess.Popen(
        [sys.executable, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as running:
        try:
            assert running.stdout is not None
            wait_until(lambda: "here" in run_python("-m", "meshrt.debug", "-c", "list").stdout, 40)
            stopped = debug("wait here 20", "p here Here", "attach here 1", "p Here.__name__", "detach", "continue")
            assert "[0-1] <class '__main__.Here'>\n" in stopped and "'Here'\n" in stopped
            assert running.stdout.readline() == "values [40, 41]\n"
            runs = debug("p here Here", "source here Here.run")
            assert "[0-1] <class '__main__.Here'>\n" in runs and "rank = current_rank().rank" in runs
            refused = run_python("-m", "meshrt.debug", "-p", str(running.pid), "-c", "p here mesh").stdout
            assert "`self`, its class and what the class uses of the script are known" in refused
        finally:
            running.kill()


@pytest.mark.slow
def test_a_class_in_a_module_beside_the_script(tmp_path: Path) -> None:
    head, tail = WHOLE.split("if True:")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "actors.py").write_text(head)
    (tmp_path / "lib" / "__init__.py").write_text("")
    (tmp_path / "script.py").write_text(f"from meshrt import proc_mesh\nfrom lib.actors import Here\nif True:{tail}")
    with program("script.py", cwd=tmp_path) as running:
        looked_at(running)


@pytest.mark.slow
def test_minus_m(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(WHOLE)
    with program("-m", "whole", cwd=tmp_path) as running:
        looked_at(running)


@pytest.mark.slow
def test_minus_c() -> None:
    with program("-c", WHOLE) as running:
        looked_at(running)


@pytest.mark.slow
@pytest.mark.parametrize("dash", [(), ("-",)])
def test_standard_input_from_a_pipe(dash: tuple[str, ...]) -> None:
    with program(*dash, stdin=WHOLE) as running:
        looked_at(running)


@pytest.mark.slow
@pytest.mark.parametrize(("env", "text"), [({"PYTHONUNBUFFERED": "1"}, WHOLE), ({}, WHOLE + "# " + 6000 * "x" + "\n")])
def test_a_pipe_that_nobody_has_kept(env: dict[str, str], text: str) -> None:
    """Unbuffered, or longer than C stdio's buffer: the text is gone when Python has read it. All else works."""
    with program(stdin=text, env=env) as running:
        looked_at(running, source=False)


@pytest.mark.slow
def test_standard_input_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WHOLE)
    with open(tmp_path / "script.py") as file:
        running = subprocess.Popen(
            [sys.executable], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
    try:
        looked_at(running)
    finally:
        running.kill()
        running.communicate()


@pytest.mark.slow
def test_executed_text(tmp_path: Path) -> None:
    """The class has a file name of its own making, as that of a notebook's cell has."""
    code = (
        "import linecache\n"
        f"text = {WHOLE!r}\n"
        "linecache.cache['<cell 7>'] = (len(text), None, text.splitlines(True), '<cell 7>')\n"
        "exec(compile(text, '<cell 7>', 'exec'))\n"
    )
    (tmp_path / "notebook.py").write_text(code)
    with program("notebook.py", cwd=tmp_path) as running:
        looked_at(running)


@pytest.mark.slow
def test_pasted_into_python() -> None:
    with screen("-i", "-q", MESHRT_DEBUG_AUTO="0", PYTHON_BASIC_REPL="1") as me:
        me.sees(">>> ")
        me.child.send(
            WHOLE.replace("\nif True:\n    mesh", "\nmesh").replace("\n    print(", "\nprint(").replace("\n", "\r")
        )
        me.sees_stops(2, "here", "")
        done = run_python(
            "-m", "meshrt.debug", "-c", "attach here 1", "-c", "ll", "-c", "n", "-c", "detach", "-c", "continue"
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "secret = rank + 40  # the line that is shown" in done.stdout
        assert "-> secret = rank + 40" in done.stdout
        me.sees("values [40, 41]")
        me.types("exit()")
        me.ends()
