"""``meshrt launch`` on one machine: alone, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.programs import ROOT, environment, run_python

SCRIPT = """
import sys
from meshrt import Actor, endpoint, proc_mesh, this_host
class Worker(Actor):
    @endpoint
    def argv(self) -> list[str]:
        return sys.argv
mesh = proc_mesh()
print(dict(mesh.extent.items()), mesh.spawn("worker", Worker).argv.call().get(30).values())
print(this_host().spawn_procs({"procs": 2}).spawn("here", Worker).argv.call().get(30).values())
if "fail" in sys.argv:
    mesh.spawn("worker2", Worker, 1)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_a_single_host_opens_no_port(script: str) -> None:
    env = environment(CUDA_VISIBLE_DEVICES="3,5", MESHRT_PORTS="none")  # read where a port is opened
    done = run_python("-m", "meshrt", "launch", "--hosts", "1", script, "--hosts", "2", env=env)
    argv = [script, "--hosts", "2"]
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{{'hosts': 1, 'gpus': 2}} {[argv, argv]}", f"{[argv, argv]}"]


@pytest.mark.slow
def test_an_error_of_the_script_is_shown_without_the_launch(script: str) -> None:
    env = environment(CUDA_VISIBLE_DEVICES="")
    plain, launched = (
        run_python(*words, script, "fail", env=env) for words in ((), ("-m", "meshrt", "launch", "--hosts", "1"))
    )
    assert (launched.returncode, launched.stderr) == (plain.returncode, plain.stderr) == (1, launched.stderr)
    assert "TypeError" in launched.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["train.py"], "no launcher is known here"),
        (["--hosts", "2", "--index", "0", "train.py"], "the hosts cannot find each other"),
        (
            ["--hosts", "2", "--index", "0", "--min-hosts", "3", "--job", "a", "train.py"],
            "--min-hosts 3, but the number of hosts is 2",
        ),
        (["--hosts", "none", "train.py"], "'none' is not a valid number of hosts"),
        (["--index", "x", "train.py"], "'x' is not a valid number of a host"),
        (["--timeout", "soon", "train.py"], "'soon' is not a valid number of seconds"),
        (["--hosts", "1", "nowhere.py"], "there is no script nowhere.py"),
        (["--hosts", "1"], "is missing; usage: launch"),
    ],
)
def test_what_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    done = run_python("-m", "meshrt", "launch", *words, cwd=tmp_path, env=environment())
    assert done.returncode == 2 and done.stderr.startswith("meshrt launch: ") and why in done.stderr


def test_the_example_runs_alone_and_launched() -> None:
    example = str(ROOT / "examples" / "cluster.py")
    for words in ([example], ["-m", "meshrt", "launch", "--hosts", "1", example]):
        done = run_python(*words, "20", env=environment(CUDA_VISIBLE_DEVICES=""))
        assert done.returncode == 0 and "weight 0.878 after 20 steps" in done.stdout
