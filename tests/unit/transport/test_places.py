"""Where a program has its directories: what the environment names, if it is safe, or else where commands look too."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.transport import places
from tests.support.others import NOBODY, give_to_nobody


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("MESHRT_RUNTIME_DIR", "MESHRT_RUNS", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files, which anybody may write to; there is no other one."""
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    monkeypatch.setattr(places, "_TEMPORARY", (str(path),))
    return path


@pytest.fixture
def told() -> list[str]:
    return []


def runtime_name() -> str:
    return f"meshrt-{os.geteuid()}"


def test_the_runtime_directory_of_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert places.make_runtime_base(told.append) == tmp_path / "meshrt" == places.runtime_bases()[0]
    assert stat.S_IMODE((tmp_path / "meshrt").stat().st_mode) == 0o700 and not told


@pytest.mark.parametrize("value", ["relative", "", "/not/there"])
def test_one_that_is_none(
    value: str, temporary: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: list[str]
) -> None:
    (tmp_path / "relative").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert places.make_runtime_base(told.append) == temporary / runtime_name() and not told


@pytest.mark.parametrize("what", ["owner", "above", "link", "mode"])
def test_one_of_another_user_is_not_used(
    what: str, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    """As after ``su`` and ``sudo -E``: whoever owns it could swap what is in it at any time."""
    theirs = tmp_path / "theirs"
    (theirs / "run").mkdir(parents=True)
    runtime = theirs / "run"
    if what == "owner":
        give_to_nobody(runtime)
    elif what == "above":
        give_to_nobody(theirs)
    elif what == "mode":
        runtime.chmod(0o777)
    else:
        runtime = tmp_path / "link"
        runtime.symlink_to(theirs / "run")
        give_to_nobody(runtime)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    base = places.make_runtime_base(told.append)
    assert base == temporary / runtime_name()
    assert [text.startswith(f"{runtime}/meshrt is not safe: ") for text in told] == [True], told
    assert told[0].endswith(f"; {base} is used instead")
    assert not list(theirs.rglob("meshrt*")) and places.runtime_bases() == [base]
    if what == "owner":
        assert f"{runtime} belongs to uid {NOBODY}, not to you" in told[0]


@pytest.mark.parametrize("squatted", ["directory", "file", "link", "open"])
def test_a_name_that_anybody_has_taken(squatted: str, temporary: Path, tmp_path: Path, told: list[str]) -> None:
    """Programs and commands agree on another one, that nobody can guess."""
    name = temporary / runtime_name()
    if squatted == "file":
        name.touch()
    elif squatted == "link":
        (tmp_path / "mine").mkdir(mode=0o700)
        name.symlink_to(tmp_path / "mine")
    else:
        name.mkdir(mode=0o700)
    if squatted == "open":
        name.chmod(0o755)
    else:
        give_to_nobody(name)
    decoy = temporary / f"{runtime_name()}-abcdefgh"
    decoy.mkdir(mode=0o700)
    if os.geteuid() == 0:
        give_to_nobody(decoy)
    base = places.make_runtime_base(told.append)
    if os.geteuid() == 0:
        assert base not in (name, decoy)
    assert base.parent == temporary and base.name.startswith(f"{runtime_name()}-")
    assert told == [f"{told[0].partition('; ')[0]}; {base} is used instead"] and str(name) in told[0]
    assert (base.stat().st_uid, stat.S_IMODE(base.stat().st_mode)) == (os.geteuid(), 0o700)
    assert places.make_runtime_base() == base, "the next program uses the same"
    assert places.runtime_bases() == [base]


def test_what_others_own_is_not_looked_into(temporary: Path) -> None:
    mine, theirs = temporary / runtime_name(), temporary / f"{runtime_name()}-aaaaaaaa"
    for path in (mine, theirs):
        path.mkdir(mode=0o700)
    give_to_nobody(theirs)
    assert places.runtime_bases() == [mine]


def test_no_place_at_all(temporary: Path) -> None:
    temporary.chmod(0o777)
    with pytest.raises(UsageError, match=r"other users can change .*tmp \(mode 777\). Set MESHRT_RUNTIME_DIR to a dir"):
        places.make_runtime_base()
    assert not list(temporary.iterdir())


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system to which nobody can write, root included."""
    path = tmp_path / "read_only"
    path.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,mode=1777", "meshrt-test", str(path)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode != 0:
        pytest.skip("a file system of its own needs root's rights")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_file_system_that_is_read_only(
    read_only: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(read_only))
    assert places.make_runtime_base(told.append) == temporary / runtime_name() and not told
    monkeypatch.setattr(places, "_TEMPORARY", (str(read_only),))
    for _ in range(2):
        with pytest.raises(UsageError, match="cannot be made: Read-only file system; set MESHRT_RUNTIME_DIR to a dir"):
            places.make_runtime_base()
        monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(read_only / "mine"))


@pytest.mark.parametrize("above", ["mode", "owner"])
def test_the_place_that_was_asked_for_is_refused(above: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    if above == "mode":
        shared.chmod(0o777)
    else:
        give_to_nobody(shared)
    (shared / "mine").mkdir(mode=0o700)
    for name in ("mine", "new", "new/below"):
        monkeypatch.setenv("MESHRT_RUNTIME_DIR", str(shared / name))
        with pytest.raises(UsageError, match=f"{name} is not safe: .*shared.*; set MESHRT_RUNTIME_DIR to an"):
            places.make_runtime_base()
        with pytest.raises(UsageError, match="is not safe"):
            places.runtime_bases()
    assert [path.name for path in shared.iterdir()] == ["mine"]


def test_runs_of_another_user_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    home, theirs = tmp_path / "home", tmp_path / "theirs"
    for path in (home, theirs):
        path.mkdir()
    give_to_nobody(theirs)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(theirs))
    assert places.make_runs_base(told.append) == home / ".local" / "state" / "meshrt" / "runs" == places.runs_base()
    assert not told, "XDG_STATE_HOME may be everybody's"
    monkeypatch.setenv("MESHRT_RUNS", str(theirs / "runs"))
    assert places.make_runs_base(told.append) == places.runs_base() == home / ".local" / "state" / "meshrt" / "runs"
    assert told == [
        f"MESHRT_RUNS is not safe: {theirs} belongs to uid {NOBODY}, not to you; {places.runs_base()} is used instead"
    ]
    assert not list(theirs.iterdir())


def test_runs_without_a_home(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    """Where no directory above it is this user's, commands still find what programs have left."""

    def no_entry(_uid: int) -> None:
        raise KeyError

    (tmp_path / "homes").mkdir()
    (tmp_path / "homes").chmod(0o777)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)
    monkeypatch.setenv("HOME", str(tmp_path / "homes" / "mine"))
    base = places.make_runs_base(told.append)
    assert base == temporary / runtime_name() / "runs" == places.runs_base() and base.is_dir()
    assert [text.startswith(f"no home directory is safe; {base} is used instead") for text in told] == [True], told
    assert places.runtime_bases() == [base.parent], "which is as private as it has to be"


def test_a_home_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``sudo`` that keeps HOME: root would write into what the user has prepared there."""
    give_to_nobody(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    state = places.state_directory()
    assert state is None or not state.is_relative_to(tmp_path)


def test_a_place_where_nothing_can_be_made_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_RUNTIME_DIR", "/proc/nope")
    with pytest.raises(UsageError, match=r"/proc/nope cannot be made: .*; set MESHRT_RUNTIME_DIR") as caught:
        places.make_runtime_base()
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
