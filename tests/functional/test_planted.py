"""Files in the working directory that have the names of modules: no process that meshrt starts runs one of them.

Programs are started the ways that keep the working directory off the path of the program itself: by the path of a
script. What meshrt starts for them must keep to that. Under ``-I`` no environment variable is read: meshrt is found by
`sys.path` of the script alone.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from meshrt.debug.dap.router.launch_json import ADAPTER
from meshrt.engine.agent_process import AGENT_PROGRAM
from meshrt.engine.interpreter import NO_FILE
from meshrt.transport import helper
from tests.support.free_port import free_port
from tests.support.programs import ROOT, environment
from tests.support.waiting import wait_until

WAIT = 60
#: Names that are imported by what meshrt starts, or may be: all of Python's, and of what meshrt needs.
NAMES = {name for name in sys.stdlib_module_names if name not in sys.builtin_module_names}
NAMES |= {
    "aiohttp",
    "cloudpickle",
    "debugpy",
    "jinja2",
    "meshrt",
    "msgpack",
    "msgspec",
    "numpy",
    "prompt_toolkit",
    "psutil",
}
NAMES |= {"psutil", "rich", "sitecustomize", "tabulate", "textual", "textual_serve", "torch", "usercustomize", "uvloop"}
FLAGS = pytest.mark.parametrize("flags", [(), ("-P",), ("-I",)], ids=["plain", "-P", "-I"])

#: As ``meshrt``, the command of an installation, is written; found without an environment variable.
COMMAND = f"import sys\nsys.path.append({str(ROOT)!r})\nfrom meshrt.cli import main\nsys.exit(main())\n"
PROGRAM = f"""
import sys
sys.path.append({str(ROOT)!r})
from meshrt import Actor, endpoint, proc_mesh

class Sum(Actor):
    @endpoint
    def add(self, *numbers: int) -> int:
        return sum(numbers)

mesh = proc_mesh(n=2, preload=["colorsys"], dap=int(sys.argv[1]))
print(mesh.spawn("sum", Sum).add.call(1, 2).get().values(), flush=True)
print(sys.stdin.readline())
"""


class Planted:
    """A working directory with planted files, and scripts somewhere else.

    Attributes:
        directory: The working directory.
        elsewhere: Where scripts are written.
    """

    def __init__(self, base: Path) -> None:
        self.directory, self.elsewhere = base / "planted", base / "elsewhere"
        self._ran = base / "ran"
        for directory in (self.directory, self.elsewhere, self._ran):
            directory.mkdir()
        for name in NAMES:
            code = f"open({str(self._ran)!r} + '/{name}', 'w').close()\nraise SystemExit('{name} was planted')\n"
            (self.directory / f"{name}.py").write_text(code)

    def script(self, name: str, code: str) -> str:
        """Write a script; returns its path."""
        path = self.elsewhere / name
        path.write_text(code)
        return str(path)

    def ran(self) -> list[str]:
        """The names of the files that were run."""
        return sorted(os.listdir(self._ran))


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path)


@contextmanager
def started(planted: Planted, *command: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, *command], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=planted.directory,
        env=environment(MESHRT_DAP_TOKEN="the token of the tests"),
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@FLAGS
def test_what_a_program_starts(flags: tuple[str, ...], planted: Planted) -> None:
    """Its host agent, the process that preloads modules, its ranks and the server for an IDE."""
    with started(planted, *flags, planted.script("train.py", PROGRAM), str(free_port())) as program:
        assert program.stdout and program.stderr
        assert program.stdout.readline() == "[3, 3]\n", program.stderr.read()
        said = program.stderr.readline()
        assert "an IDE can attach at " in said, said
        helpers = [each for each in psutil.Process(program.pid).children() if "dap" in each.cmdline()]
        assert [each.cwd() for each in helpers] == [helper.SAFE_DIRECTORY]
        output, said = program.communicate("\n", timeout=WAIT)
        assert (program.returncode, planted.ran()) == (0, []), (output, said)


@pytest.mark.slow
def test_the_screens_of_browsers(planted: Planted) -> None:
    aiohttp = pytest.importorskip("aiohttp", reason="not installed: textual-serve (pip install --group top)")
    pytest.importorskip("textual_serve", reason="not installed: textual-serve (pip install --group top)")

    async def browse(address: str) -> None:
        async with (
            aiohttp.ClientSession() as person,
            person.ws_connect(f"{address}ws?width=120&height=30") as screen,
            asyncio.timeout(WAIT),
        ):
            shown = b""
            while b"1 idle" not in shown:
                shown += (await screen.receive()).data

    program = f"import sys\nsys.path.append({str(ROOT)!r})\nfrom meshrt import proc_mesh\n"
    program += "proc_mesh(n=1).initialized.get()\nprint('up', flush=True)\nsys.stdin.readline()\n"
    command = planted.script("meshrt", COMMAND)
    with started(planted, planted.script("train.py", program)) as running, ExitStack() as stack:
        assert running.stdout and running.stdout.readline() == "up\n"
        words = ("top", str(running.pid), "--serve", "--port")
        serving = [
            stack.enter_context(started(planted, *flags, command, *words, str(free_port())))
            for flags in ((), ("-P",), ("-I",))
        ]
        for each in serving:
            assert each.stdout
            asyncio.run(browse(each.stdout.readline().strip()))
            assert psutil.Process(each.pid).cwd() == helper.SAFE_DIRECTORY
            each.send_signal(signal.SIGINT)
            each.communicate(timeout=WAIT)
            assert (each.returncode, planted.ran()) == (0, [])
        running.communicate("\n", timeout=WAIT)


@FLAGS
def test_a_script_that_meshrt_run_starts(flags: tuple[str, ...], planted: Planted) -> None:
    """It is run with the options of the interpreter that runs the command, as ``python OPTIONS -u`` runs it."""
    command = planted.script("meshrt", COMMAND)
    script = planted.script("train.py", "import json, sys\nprint(sys.flags.safe_path, sys.flags.isolated)\n")
    with started(planted, *flags, command, "run", script) as running:
        output, said = running.communicate(timeout=WAIT)
        shown = f"{bool(flags)} {int('-I' in flags)}\n"
        assert (output, running.returncode, planted.ran()) == (shown, 0, []), said
    if flags:  # without one of them, Python looks for a module in the working directory
        with started(planted, *flags, command, "run", "-m", "colorsys") as running:
            running.communicate(timeout=WAIT)
            assert (running.returncode, planted.ran()) == (0, [])


def test_gpus_are_counted_without_the_working_directory(planted: Planted) -> None:
    command = planted.script("meshrt", COMMAND)
    script = planted.script("train.py", "print('runs')\n")
    with started(planted, command, "run", "--nproc-per-node", "gpu", script) as running:
        output, said = running.communicate(timeout=WAIT)
        assert "torch finds no GPU" in said or "runs" in output, said
        assert planted.ran() == []


def test_the_agent_below_ray(planted: Planted) -> None:
    """Ray's workers have the working directory of their job."""
    agent = (
        f"import sys\nsys.path.append({str(ROOT)!r})\nfrom meshrt.engine.ray_host import HostAgent\n"
        "agent = HostAgent()\nassert not agent.start(b'', {})[1]\n"
        "while not isinstance(agent.read(), int):\n    pass\n"
    )
    with started(planted, planted.script("worker.py", agent)) as running:
        _, said = running.communicate(timeout=WAIT)
        assert (running.returncode, planted.ran()) == (0, []), said


def test_an_agent_that_is_found_by_its_name(planted: Planted) -> None:
    """Another machine may have meshrt at another path; a container starts commands in the directory of its program."""
    nowhere = planted.script(
        "nowhere", f'case "$*" in *{AGENT_PROGRAM}*) echo "{NO_FILE}" >&2; exit 2;; esac\nexec "$@"\n'
    )
    program = planted.script(
        "train.py",
        f"import sys\nsys.path.append({str(ROOT)!r})\nfrom meshrt import proc_mesh\n"
        "from meshrt.engine.command import CommandEngine\n"
        f"engine = CommandEngine(('n1',), (('env', 'PYTHONPATH={ROOT}', 'sh', {nowhere!r}),))\n"
        "with proc_mesh(hosts=1, gpus=1, engine=engine) as mesh:\n    mesh.get(60)\n",
    )
    with started(planted, program) as running:
        _, said = running.communicate(timeout=WAIT)
        assert (running.returncode, planted.ran()) == (0, []), said


@FLAGS
def test_the_adapter_that_an_ide_starts(flags: tuple[str, ...], planted: Planted) -> None:
    """In the folder that is open there, which may be anybody's."""
    with started(planted, *flags, str(ADAPTER), "4711") as adapter:  # an IDE that goes away at once
        _, said = adapter.communicate(timeout=WAIT)
        assert (adapter.returncode, planted.ran()) == (0, []), said


def test_a_helper_is_safe_by_its_command_alone(planted: Planted) -> None:
    """Also where it does not work in a safe directory."""
    with started(planted, *helper.helper_command("--help")[1:]) as running:
        _, said = running.communicate(timeout=WAIT)
        assert (running.returncode, planted.ran()) == (0, []), said


def test_planted_files_are_run_where_they_are_found(planted: Planted) -> None:
    """Otherwise the tests above show nothing."""
    with started(planted, "-m", "meshrt", "--help") as running:
        running.communicate(timeout=WAIT)
        wait_until(lambda: bool(planted.ran()), WAIT, "a planted file is run")


def test_the_environment_of_a_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry of PYTHONPATH is the working directory; relative names are of this one, not of the helper's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{os.pathsep}lib{os.pathsep}/opt/lib{os.pathsep}")
    monkeypatch.setenv("MESHRT_RUNS", "runs")
    found = helper.helper_environment("r/p-01234567")
    assert found["PYTHONPATH"] == f"{tmp_path}/lib{os.pathsep}/opt/lib"
    assert (found["MESHRT_RUNTIME_DIR"], found["MESHRT_RUNS"]) == (f"{tmp_path}/r", f"{tmp_path}/runs")
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in helper.helper_environment("r/p-01234567")
