"""Cleaners of temporary files, and other hands that remove what a running program needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from meshrt import ActorMesh, MeshError, SpawnError, UsageError, proc_mesh, this_proc
from meshrt.transport.process import current_runtime
from meshrt.transport.tools import connect, programs
from tests.faults.actors import Victim
from tests.faults.watch import LONG, sockets
from tests.support.programs import another_program, environment, run_python
from tests.support.untyped import asked
from tests.support.waiting import wait_until


@pytest.fixture
def victims() -> ActorMesh[Victim]:
    return proc_mesh(n=2).spawn("victim", Victim).get(LONG)


def sockets_of_this_program() -> dict[str, int]:
    """What listens, by its path, with the number of its file."""
    return {path: os.stat(path).st_ino for path in sockets()}


def remove(path: Path) -> None:
    """Remove a directory at once: the program makes again what it misses, also while files are still removed."""
    shutil.rmtree(path.rename(path.with_name("removed")))


def files() -> set[str]:
    directory = Path(current_runtime().directory)
    return {path.name for path in directory.iterdir()} if directory.is_dir() else set()


@pytest.mark.slow
@pytest.mark.parametrize("removed", ["the lock", "all files", "all directories"])
def test_what_was_removed_is_made_again(
    removed: str, victims: ActorMesh[Victim], capfd: pytest.CaptureFixture[str]
) -> None:
    """Nobody who is connected notices; whoever comes finds what is needed."""
    own = this_proc().spawn("own", Victim).get(LONG)
    directory = Path(current_runtime().directory)
    before, listening = files(), sockets_of_this_program()
    assert len(listening) == 5, "of two ranks, of this process, of the store and for terminals"
    old = connect(programs()[0])
    if removed == "the lock":
        (directory / ".lock").unlink()
    elif removed == "all files":
        for path in directory.iterdir():
            path.unlink()
    else:
        remove(directory.parent)
    assert victims.echo.call(1).get(LONG).values() == [1, 1]
    wait_until(lambda: files() == before, LONG, "what was removed is there again")
    again = sockets_of_this_program()
    assert again.keys() == listening.keys()
    if removed != "the lock":
        with pytest.raises(MeshError, match="has no operation"):  # it answers
            old.ask(asked("no.such"), LONG)
        assert victims.apply.call(np.sum, np.ones(1 << 20)).get(LONG).values() == [1 << 20] * 2
    (program,) = programs()
    assert program.pid == os.getpid()
    connect(program).close()
    old.close()
    more = proc_mesh(n=1).spawn("more", Victim).get(LONG)
    assert more.apply.call_one(calls, victims, own).get(LONG) == [[1, 1], [2]], "through sockets that are new to it"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 == stat.S_IMODE(directory.parent.stat().st_mode)
    assert all(stat.S_IMODE((directory / name).stat().st_mode) == 0o600 for name in ("tools.token", "program.json"))
    lines = [line for line in capfd.readouterr().err.splitlines() if "was removed from outside" in line]
    assert len(lines) == 1 and "set MESHRT_RUNTIME_DIR" in lines[0], lines


def calls(victims: ActorMesh[Victim], own: ActorMesh[Victim]) -> list[list[int]]:
    return [victims.echo.call(1).get(LONG).values(), own.echo.call(2).get(LONG).values()]


def test_what_was_removed_is_there_again_for_the_next_mesh(victims: ActorMesh[Victim]) -> None:
    """Whenever it was removed; the file of terminals' socket follows."""
    directory = Path(current_runtime().directory)
    before = files()
    for number in range(3):
        remove(directory.parent)
        assert proc_mesh(n=1).spawn("more", Victim).get(LONG).echo.call_one(number).get(LONG) == number
    wait_until(lambda: files() >= before, LONG, "what was removed is there again")
    connect(programs()[0]).close()


def test_files_of_a_running_program_are_given_new_times(
    victims: ActorMesh[Victim], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(current_runtime().directory)
    paths = [*directory.iterdir(), directory, directory.parent]
    for path in paths:
        os.utime(path, (0, 0))
    begun = time.time_ns() - 10**9
    monkeypatch.setattr("meshrt.mesh.upkeep.REFRESH", 0.0)
    wait_until(lambda: all(path.stat().st_atime_ns > begun for path in paths), LONG, "all have new times")
    assert victims.echo.call(1).get(LONG).values() == [1, 1]


def test_a_place_that_is_taken_meanwhile_is_told(victims: ActorMesh[Victim], capfd: pytest.CaptureFixture[str]) -> None:
    base = Path(current_runtime().directory).parent
    taken = base.with_name("taken")
    taken.mkdir()
    taken.chmod(0o777)
    while taken.exists():
        remove(base)
        with contextlib.suppress(OSError):  # the program has made it again meanwhile
            taken.rename(base)
    told: list[str] = []

    def is_told() -> bool:
        told.extend(line for line in capfd.readouterr().err.splitlines() if "cannot be created again" in line)
        return bool(told)

    try:
        wait_until(is_told, LONG, "it is told")
        assert f"other users can change {base}" in told[0] and "Terminals cannot find this program" in told[0]
        assert victims.echo.call(1).get(LONG).values() == [1, 1]
        with pytest.raises(SpawnError, match=r"its socket, pipe or log cannot be created: No such file or directory$"):
            proc_mesh(n=1).get(LONG)
    finally:
        base.rmdir()
    wait_until(lambda: files() >= {"tools", "program.json"}, LONG, "it is made again once that is gone")


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path is short, as those of sockets must be."""
    path = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def test_a_directory_that_is_named_from_where_the_program_was_started(short: Path) -> None:
    """A relative one means the same after ``os.chdir``, here and in what the program starts."""
    script = short / "script.py"
    (short / "elsewhere").mkdir()
    script.write_text(
        """
import os, subprocess, sys
import meshrt
os.chdir("elsewhere")
from tests.faults.actors import Victim
one = meshrt.proc_mesh(n=1).spawn("one", Victim)
print(one.echo.call_one(1).get(20))
os.chdir("/")
two = meshrt.proc_mesh(n=1).spawn("two", Victim)
print(two.echo.call_one(2).get(20), one.apply.call_one(os.environ.get, "MESHRT_RUNTIME_DIR").get(20))
print(subprocess.run([sys.executable, "-m", "meshrt", "ps", "--json"], capture_output=True, text=True).stdout)
"""
    )
    done = run_python(str(script), cwd=short, env=environment(MESHRT_RUNTIME_DIR="r", MESHRT_RUNS="runs"), seconds=60)
    assert done.returncode == 0, done.stderr
    first, second, *told = done.stdout.splitlines()
    assert (first, second) == ("1", f"2 {short}/r")
    assert "script.py" in "\n".join(told)
    assert {path.name for path in short.iterdir()} == {"r", "runs", "elsewhere", "script.py"}
    assert not list((short / "elsewhere").iterdir())


def test_directories_whose_names_are_no_text(short: Path) -> None:
    """A name is bytes: those of the runtime directory, of the output, and of the modules that ranks import."""
    odd = short / os.fsdecode(b"d\xff")
    odd.mkdir()
    (odd / "helper.py").write_text("def double(value):\n    print('doubles')\n    return 2 * value\n")
    (odd / "script.py").write_text(
        """
import meshrt
from helper import double
from tests.faults.actors import Victim
one = meshrt.proc_mesh(n=1).spawn("one", Victim)
print(one.apply.call_one(double, 4).get(20))
"""
    )
    where = environment(MESHRT_RUNTIME_DIR=str(odd / "r"), MESHRT_RUNS=str(odd / "runs"))
    done = run_python(str(odd / "script.py"), env=where)
    assert done.returncode == 0, done.stderr
    assert "8" in done.stdout.splitlines()  # what the rank prints may come before it, or behind
    (log,) = (odd / "runs").glob("*/*.0.log")
    assert "doubles" in log.read_text()


def test_commands_find_a_program_whose_place_another_user_has_taken(
    short: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """``mkdir /tmp/meshrt-UID`` by anybody: the program runs, says where it is, and terminals find it."""
    short.chmod(0o1777)
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.delenv("MESHRT_RUNTIME_DIR")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (short / f"meshrt-{os.geteuid()}").write_text("taken")
    with another_program() as program:
        done = run_python("-m", "meshrt", "ps", env=environment())
        assert done.returncode == 0 and str(program.pid) in done.stdout
    said = capfd.readouterr().err
    assert f"{short}/meshrt-{os.geteuid()} is not a directory" in said and "is used instead" in said


def test_it_is_told_where_no_place_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(tmp_path / "open" / "r"))
    with pytest.raises(UsageError, match=r"other users can change .*open"):
        proc_mesh(n=1)
