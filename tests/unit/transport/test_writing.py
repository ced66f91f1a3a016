"""Files are written whole, private, and never through what another user has planted."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.errors import UsageError
from meshrt.transport.writing import check_place, open_private, write_atomic
from tests.support.limits import full_disk
from tests.support.others import give_to_nobody


def test_a_small_file_is_there_whole_and_private(tmp_path: Path) -> None:
    write_atomic(tmp_path / "token", "old")
    write_atomic(tmp_path / "token", "new")
    assert (tmp_path / "token").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def test_a_file_that_is_replaced_stays_what_it_was(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    kept, link, dangling = tmp_path / "kept" / "file", tmp_path / "link", tmp_path / "dangling"
    kept.write_text("old")
    kept.chmod(0o640)
    link.symlink_to("kept/file")
    dangling.symlink_to("kept/new")
    for path in (link, dangling):
        write_atomic(path, "new")
        assert path.is_symlink() and path.read_text() == "new"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (link, dangling)] == [0o640, 0o600]
    write_atomic(link, "secret", private=True)
    assert link.is_symlink() and stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dangling", "file", "kept", "link", "new"]


def test_what_is_no_file_is_written_to_or_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fifo, sock = tmp_path / "fifo", tmp_path / "sock"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomic(fifo, ["some ", "text"])
        assert os.read(reader, 100) == b"some text" and fifo.is_fifo()
    finally:
        os.close(reader)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(sock))
        for path, complaint in ((sock, "is a socket"), (tmp_path, "directory")):
            with pytest.raises(OSError, match=f"(?i){complaint}.*{path}"):
                write_atomic(path, "text")
        assert sock.is_socket()
    os.write(1, b"before ")
    write_atomic(Path("/dev/stdout"), "text")
    os.write(1, b" behind")
    assert capfd.readouterr().out == "before text behind"
    assert sorted(tmp_path.iterdir()) == [fifo, sock]


def test_a_device_stays_one(tmp_path: Path) -> None:
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o600, Path(os.devnull).stat().st_rdev)
        null.write_text("")
    except PermissionError:
        pytest.skip("devices cannot be made here")
    write_atomic(null, "text")
    assert null.is_char_device()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    for path, number in ((tmp_path / "token", errno.EFBIG), (tmp_path / "not there" / "token", errno.ENOENT)):
        with full_disk(), pytest.raises(OSError, match="token") as caught:
            write_atomic(path, "text")
        assert (caught.value.errno, caught.value.filename) == (number, str(path))
    assert not list(tmp_path.iterdir())


def test_what_is_no_error_of_the_file_says_what_it_is(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "some"
        raise ConnectionError("the program has ended")

    with pytest.raises(ConnectionError, match="the program has ended"):
        write_atomic(tmp_path / "token", pieces())
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_through_what_others_have_planted(tmp_path: Path) -> None:
    """In a directory of everybody: links and pipes under the name, or under that of the temporary file."""
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    shared.chmod(0o1777)
    victim.write_text("precious")
    victim.chmod(0o600)
    snapshot, link, pipe, theirs = (shared / name for name in ("snapshot", "link", "pipe", "theirs"))
    planted = [shared / f".snapshot.{os.getpid()}", shared / ".snapshot", shared / f".snapshot.{os.getpid()}.tmp"]
    for path in (*planted, link):
        path.symlink_to(victim)
    os.mkfifo(pipe)
    theirs.write_text("bait")
    theirs.chmod(0o666)
    give_to_nobody(*planted, link, pipe, theirs)
    write_atomic(snapshot, "mine")
    assert snapshot.read_text() == "mine" and snapshot.lstat().st_uid == os.geteuid()
    with pytest.raises(PermissionError, match=f"is a link of uid 65534, which is not followed: '{link}'"):
        write_atomic(link, "mine")
    with pytest.raises(
        PermissionError, match=f"is a pipe of uid 65534, another user, who could read the output: '{pipe}'"
    ):
        write_atomic(pipe, "mine")
    write_atomic(theirs, "mine")
    facts = theirs.stat()
    assert (theirs.read_text(), facts.st_uid, stat.S_IMODE(facts.st_mode)) == ("mine", os.geteuid(), 0o600)
    assert victim.read_text() == "precious" and stat.S_IMODE(victim.stat().st_mode) == 0o600
    assert sorted(shared.iterdir()) == sorted([snapshot, link, pipe, theirs, *planted]), "and nothing is left"


def test_a_name_that_was_guessed_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    planted, victim = tmp_path / f".file.{bytes(8).hex()}", tmp_path / "victim"
    victim.write_text("precious")
    for plant in (planted.symlink_to, planted.hardlink_to):
        plant(victim)
        with pytest.raises(FileExistsError, match="file"):
            write_atomic(tmp_path / "file", "mine")
        assert victim.read_text() == "precious" and planted.exists()
        planted.unlink()


def test_two_that_write_at_once_have_files_of_their_own(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "one"
        write_atomic(tmp_path / "file", "other")
        assert (tmp_path / "file").read_text() == "other"

    write_atomic(tmp_path / "file", pieces(), durable=True)
    assert (tmp_path / "file").read_text() == "one" and len(list(tmp_path.iterdir())) == 1


def test_a_name_may_be_as_long_as_names_are(tmp_path: Path) -> None:
    path = tmp_path / ("\u00e9" * 127)
    write_atomic(path, "text")
    assert path.read_text() == "text" and len(list(tmp_path.iterdir())) == 1


def test_a_log_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("victim")
    with pytest.raises(OSError, match="log"):
        open_private(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    assert not (tmp_path / "victim").exists()
    descriptor = open_private(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600
    os.close(descriptor)


def test_a_place_is_tried_before_it_is_needed(tmp_path: Path) -> None:
    check_place(tmp_path / "new.json")
    (tmp_path / "old.json").write_text("old")
    check_place(tmp_path / "old.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old"
    for path, problem in (
        (Path("/proc/new.json"), "/proc/new.json cannot be written: No such file or directory"),
        (tmp_path, "is a directory"),
        (tmp_path / "none" / "new.json", "there is no directory"),
    ):
        with pytest.raises(UsageError, match=problem):
            check_place(path)
