"""``meshrt run -n``: scripts that know nothing of meshrt, as they run, end and are looked into."""

from __future__ import annotations

import json
import os
import py_compile
import re
import signal
import subprocess
import sys
import zipapp
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.footprint import marked_processes
from tests.support.programs import environment, run_python
from tests.support.waiting import wait_until

FACTS = """\
import json, os, sys
facts = {
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "file": __file__, "package": __package__,
    "main": sys.modules["__main__"].__dict__ is globals(), "cwd": os.getcwd(), "flags": sys.flags.safe_path,
}
print(json.dumps([int(os.environ.get("RANK", 0)), facts]), flush=True)
"""
TRAIN = """\
import os, signal, sys, time

rank = int(os.environ["RANK"])
loss = rank * 10
if rank == 1:
    exec(sys.argv[1])
"""


def script(tmp_path: Path, text: str, name: str = "train.py") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def run(*words: str, ranks: int = 2, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "meshrt", "run", "-n", str(ranks), *words, cwd=cwd)


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "meshrt", "run", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as made:
        try:
            yield made
        finally:
            made.kill()


def facts_of(done: subprocess.CompletedProcess[str]) -> dict[int, dict[str, object]]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


def test_a_script_finds_what_python_gives_it(tmp_path: Path) -> None:
    path = script(tmp_path, FACTS)
    plain = facts_of(run_python(path, "--lr", "3e-4", "-m"))[0]
    assert facts_of(run(path, "--lr", "3e-4", "-m")) == {0: plain, 1: plain}


def test_a_module_with_a_relative_import(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    script(tmp_path / "pkg", "")
    script(tmp_path / "pkg", "VALUE = 5\n", "other.py")
    script(tmp_path / "pkg", "from .other import VALUE\nassert VALUE == 5\n" + FACTS, "go.py")
    plain = facts_of(run_python("-m", "pkg.go", "x", cwd=tmp_path))[0]
    assert facts_of(run("-m", "pkg.go", "x", cwd=tmp_path)) == {0: plain, 1: plain}


def test_a_script_that_joins_is_the_rank_that_it_is(tmp_path: Path) -> None:
    done = run(script(tmp_path, "import meshrt\nprint(meshrt.join('other'))\n"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")


@pytest.mark.parametrize("kind", ["directory", "archive", "compiled"])
def test_a_script_that_is_no_source_file(kind: str, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    path = script(tmp_path / "app", FACTS, "__main__.py")
    given = {"directory": "app", "archive": "app.pyz", "compiled": "app.pyc"}[kind]
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    py_compile.compile(path, cfile=str(tmp_path / "app.pyc"))
    plain = facts_of(run_python(given, "x", cwd=tmp_path))[0]
    assert facts_of(run(given, "x", cwd=tmp_path)) == {0: plain, 1: plain}


@pytest.mark.parametrize("way", ["alone", "-n", "launched"])
def test_modules_of_the_working_directory_are_not_those_of_python(way: str, tmp_path: Path) -> None:
    """Nor those beside the script: as if it ran alone, which needs none of them."""
    for folder in (tmp_path, tmp_path / "sub"):
        folder.mkdir(exist_ok=True)
        for name in ("selectors", "shlex", "dataclasses", "queue", "json", "subprocess", "socket"):
            script(folder, "raise AssertionError('imported')\n", f"{name}.py")
    path = script(tmp_path / "sub", "print('trained')\n")
    options = ["-n", "1"] if way == "-n" else []
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    env = environment(**place) if way == "launched" else None
    done = run_python("-m", "meshrt", "run", *options, path, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_children_that_import_the_script_again(tmp_path: Path) -> None:
    text = (
        "import multiprocessing, os\n"
        "def double(x): return 2 * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(os.environ['RANK'], pool.map(double, [1, 2]))\n"
    )
    done = run(script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 [2, 4]", "1 [2, 4]"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("pass", 0, ""),
        ("sys.exit(0)", 0, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(3)", 1, "SystemExit: 3"),
        ("raise ValueError('bad batch')", 1, "ValueError: bad batch"),
        ("os._exit(7)", 1, "exited with code 7"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 1, "was killed by SIGKILL"),
    ],
)
def test_the_status_and_the_root_cause(code: str, status: int, cause: str, tmp_path: Path) -> None:
    done = run(script(tmp_path, TRAIN), code)
    assert done.returncode == status, done.stderr
    if cause:
        root = done.stderr.partition("ROOT CAUSE  main rank 1 ")[2]
        assert cause in root and done.stderr.count("ROOT CAUSE") == 1, done.stderr
    else:
        assert done.stderr == ""


def test_the_first_failure_ends_ranks_that_would_wait_for_ever(tmp_path: Path) -> None:
    begun = f"os.path.join({str(tmp_path)!r}, 'begun')"
    text = TRAIN + f"else:\n    open({begun} + str(rank), 'w').close(); time.sleep(3600)\n"
    code = f"while not all(os.path.exists({begun} + each) for each in '02'): pass\nraise ValueError('bad batch')"
    done = run(script(tmp_path, text), code, ranks=3)
    assert done.returncode == 1 and "train.py" in done.stderr and "time.sleep" in done.stderr


@pytest.mark.slow
def test_all_ranks_are_started_again(tmp_path: Path) -> None:
    text = (
        "import os\n"
        "attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print(attempt, os.environ['RANK'], flush=True)\n"
        "if attempt < 2 and os.environ['RANK'] == '1':\n"
        "    raise ValueError('bad batch')\n"
    )
    path = script(tmp_path, text)
    done = run("--max-restarts", "2", path)
    assert done.returncode == 0, done.stderr
    assert {line for line in done.stdout.splitlines() if line.endswith("1")} == {"0 1", "1 1", "2 1"}
    said = [line for line in done.stderr.splitlines() if "attempt" in line]
    assert [re.sub(r"on \w+, pid \d+", "on HOST", line) for line in said] == [
        f"meshrt: attempt {number} of 3 has failed; all ranks are restarted: "
        "main.run() raised on rank 1 (hosts=0, gpus=1) on HOST: ValueError: bad batch"
        for number in (1, 2)
    ]
    text = text.replace("'bad batch'", "f'bad batch {attempt}'").replace("attempt < 2 and ", "")
    done = run("--max-restarts", "2", script(tmp_path, text, "worse.py"))
    shown = done.stderr.partition("=====")[0]
    assert re.findall(r"^(attempt \d of 3) had failed before: .*: ValueError: (.*)$", shown, re.M) == [
        ("attempt 1 of 3", "bad batch 0"), ("attempt 2 of 3", "bad batch 1"),
    ]  # fmt: skip
    assert "ValueError: bad batch 2" in done.stderr.partition("ROOT CAUSE")[2]
    done = run("--max-restarts", "1", path)
    assert done.returncode == 1 and done.stderr.count("ROOT CAUSE") == 1 and "ValueError: bad batch" in done.stderr


@pytest.mark.slow
def test_ranks_are_looked_into_by_the_dimensions_of_the_script(tmp_path: Path) -> None:
    path = script(tmp_path, TRAIN + "print('ready', flush=True)\ntime.sleep(3600)\n")
    with running("--mesh", "dp=2,tp=2", path, "pass") as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(4)] == ["ready\n"] * 4

        def debug(*commands: str) -> str:
            words = [word for command in commands for word in ("-c", command)]
            done = run_python("-m", "meshrt.debug", "--pid", str(program.pid), *words)
            return done.stdout

        shown = debug("where", "p main ranks(dp=1, tp=0) loss", "p main loss")
        assert "4 ranks of run" in shown and "train.py:8" in shown and "blocked" in shown
        assert "[2] 20\n" in shown and all(f"[{rank}] {rank * 10}\n" in shown for rank in range(4))
        shown = debug("interrupt main ranks(tp=1)", "attach main 3", "p loss", "detach", "continue")
        assert "\n30\n" in shown and "2 ranks of main (1,3): resumed" in shown
        memory = run_python("-m", "meshrt", "memory", "--vars", "-p", str(program.pid))
        assert "script and its host agents" in memory.stdout, memory.stderr
        program.send_signal(signal.SIGINT)
        program.wait(30)
        assert program.returncode == -signal.SIGINT
    wait_until(lambda: not marked_processes())


SAVES = """
import pathlib, signal
def save(number, _frame):
    pathlib.Path(__file__).with_name(f"saved-{rank}").write_text(signal.Signals(number).name)
    sys.exit(rank)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("handled", [True, False])
def test_a_signal_reaches_the_script_on_all_ranks(tmp_path: Path, number: signal.Signals, handled: bool) -> None:
    """It may write a checkpoint; one without a handler ends as Python does, which is no failure."""
    passed_on = signal.SIGINT if number is signal.SIGINT else signal.SIGTERM
    code = TRAIN + SAVES + (f"signal.signal({passed_on:d}, save)\n" if handled else "")
    path = script(tmp_path, code + "print('ready', flush=True)\nwhile True: time.sleep(0.1)\n")
    with running("-n", "2", path, "pass") as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        program.send_signal(number)
        _, err = program.communicate(timeout=60)
    assert program.returncode == -number and "no answer from 2 of 2 (ranks 0-1)" in err, err
    assert "FAILED" not in err and (f"30 s to end after {number.name}" in err) is (number is not signal.SIGINT), err
    assert [path.read_text() for path in tmp_path.glob("saved-*")] == [passed_on.name] * 2 * handled
    wait_until(lambda: not marked_processes())


@pytest.mark.slow
def test_the_end_of_ranks_that_are_at_a_breakpoint_is_no_failure(tmp_path: Path) -> None:
    with running("-n", "2", script(tmp_path, TRAIN + "else: breakpoint()\n"), "breakpoint()") as program:
        assert program.stderr is not None
        told = program.stderr.readline()
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT and "stopped at" in told and "FAILED" not in err, err
    assert "unfinished work" not in err, err


@pytest.mark.slow
def test_in_the_background_of_a_shell_only_ctrl_c_is_ignored(tmp_path: Path) -> None:
    path = script(tmp_path, TRAIN + "print('ready', flush=True)\nwhile True: time.sleep(0.1)\n")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with running("-n", "2", path, "pass") as program:
            signal.signal(signal.SIGINT, before)
            assert program.stdout is not None
            assert [program.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
            program.send_signal(signal.SIGINT)
            program.terminate()
            assert program.wait(20) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until(lambda: not marked_processes())


@pytest.mark.slow
def test_a_second_signal_ends_ranks_that_go_on(tmp_path: Path) -> None:
    code = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('goes on', flush=True))\n"
    path = script(tmp_path, TRAIN + code + "print('ready', flush=True)\nwhile True: time.sleep(0.1)\n")
    with running("-n", "2", path, "pass") as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        program.send_signal(signal.SIGTERM)
        assert [program.stdout.readline() for _ in range(2)] == ["goes on\n"] * 2
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == -signal.SIGTERM
    wait_until(lambda: not marked_processes())


@pytest.mark.slow
def test_a_breakpoint_stops_its_rank_alone(tmp_path: Path) -> None:
    with running("-n", "2", script(tmp_path, TRAIN), "breakpoint(); print('went on')") as program:
        words = ["-c", "wait main ranks(1) 10", "-c", "attach main 1", "-c", "p loss", "-c", "c"]

        def looked() -> bool:  # the program can be found when its mesh has started
            done = run_python("-m", "meshrt.debug", "--pid", str(program.pid), *words)
            return "\n10\n" in done.stdout

        wait_until(looked, 60)
        out, err = program.communicate(timeout=60)
        assert program.returncode == 0 and out == "went on\n", err


@pytest.mark.slow
def test_a_breakpoint_for_all_stops_all_ranks(tmp_path: Path) -> None:
    text = TRAIN + "while not os.path.exists(sys.argv[2]):\n    time.sleep(0.01)\n"
    gate = tmp_path / "gate"
    code = "import meshrt; meshrt.breakpoint(all=True)"
    with running("-n", "3", script(tmp_path, text), code, str(gate)) as program:
        words = ["-c", "wait main 20", "-c", "cast main ranks(all) p loss", "-c", "continue"]

        def looked() -> bool:  # the program can be found when its mesh has started
            done = run_python("-m", "meshrt.debug", "--pid", str(program.pid), *words)
            return "[0] 0\n[1] 10\n[2] 20\n" in done.stdout and "3 ranks of main (0-2): resumed" in done.stdout

        wait_until(looked, 60)
        gate.touch()
        _, err = program.communicate(timeout=60)
        assert program.returncode == 0, err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-n", "0", "train.py"], "'0' is not a valid number of ranks"),
        (["--nproc-per-node", "gpu", "train.py"], "--nproc-per-node gpu: torch finds no GPU"),
        (["--nnodes", "2", "train.py"], "below a launcher: torchrun --nnodes 2 ... -m meshrt run SCRIPT"),
        (["-n", "2", "missing.py"], "there is no script missing.py"),
        (["-n", "2", "."], ". is not a script, and has no __main__.py"),
        (["-n", "2", "-m", "missing_module"], "there is no module missing_module"),
        (["--mesh", "dp", "train.py"], "'dp' is not a dimension"),
        (["-n", "3", "--mesh", "dp=2", "train.py"], "--mesh dp=2 has 2 ranks, but -n is 3"),
        (["-n", "2", "--max-restarts", "-1", "train.py"], "not a valid number of restarts"),
    ],
)
def test_what_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    script(tmp_path, "")
    done = run_python("-m", "meshrt", "run", *words, cwd=tmp_path)
    assert done.returncode == 2 and why in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("count", "ranks"), [("2", 2), ("cpu", os.cpu_count()), ("auto", os.cpu_count())])
def test_the_words_of_torchrun(count: str, ranks: int, tmp_path: Path) -> None:
    names = "('RANK', 'WORLD_SIZE', 'TORCHELASTIC_MAX_RESTARTS')"
    path = script(tmp_path, f"import os\nprint(*(os.environ[name] for name in {names}))\n")
    words = ["--standalone", "--nnodes=1", f"--nproc_per_node={count}", "--max_restarts=3", path]
    env = environment(CUDA_VISIBLE_DEVICES="")
    done = run_python("-m", "meshrt", "run", *words, env=env)
    assert sorted(done.stdout.splitlines()) == [f"{rank} {ranks} 3" for rank in range(ranks)]


def test_equal_lines_are_put_together_where_that_is_said(tmp_path: Path) -> None:
    words = ("-m", "meshrt", "run", "-n", "2", script(tmp_path, "print('loading')"))
    assert run_python(*words, env=environment(MESHRT_LOGS="fold=30")).stdout == "[main 0-1] loading\n"


def test_no_process_is_left(tmp_path: Path) -> None:
    text = TRAIN + "import subprocess\nsubprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
    assert run(script(tmp_path, text), "pass").returncode == 0
    wait_until(lambda: not marked_processes())
