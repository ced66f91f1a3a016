"""Paths that another user could redirect are found, whichever component that is."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from meshrt.transport.paths import NotTrusted, open_parent
from tests.support.others import give_to_nobody


def reached(path: Path, *, guarded: bool = True, make: bool = False) -> tuple[str, str]:
    """Return the directory in which a path ends, and the name there."""
    parent, name = open_parent(path, guarded=guarded, make=make)
    try:
        return os.readlink(f"/proc/self/fd/{parent}"), name
    finally:
        os.close(parent)


def test_where_a_path_ends(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert reached(tmp_path / "a" / "missing") == (f"{tmp_path}/a", "missing")
    assert reached(tmp_path / "a") == (str(tmp_path), "a")
    assert reached(Path("/")) == ("/", ".")
    (tmp_path / "up").symlink_to("a/../a/./b")
    (tmp_path / "away").symlink_to(tmp_path / "a")
    assert reached(tmp_path / "up") == (f"{tmp_path}/a", "b"), "a link that leads nowhere yet"
    assert reached(tmp_path / "away" / "b") == (f"{tmp_path}/a", "b")


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for guarded in (True, False):
        assert reached(Path("x"), guarded=guarded) == (str(tmp_path), "x")


def test_what_is_missing_is_made_private(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        reached(tmp_path / "a" / "b" / "c")
    before = os.umask(0)
    try:
        assert reached(tmp_path / "a" / "b" / "c", make=True) == (f"{tmp_path}/a/b", "c")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("a", "a/b")] == [0o700, 0o700]
    assert not (tmp_path / "a/b/c").exists()


def test_what_is_no_directory_and_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="file is not a directory"):
        reached(tmp_path / "file" / "x")
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(OSError, match="symbolic links"):
        reached(tmp_path / "one")


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o720, 0o770])
def test_a_directory_that_others_can_change(mode: int, tmp_path: Path) -> None:
    opened = tmp_path / "open"
    opened.mkdir()
    opened.chmod(mode)
    os.chown(opened, -1, 12345) if os.geteuid() == 0 else None
    if mode & 0o002 or os.geteuid() == 0:
        with pytest.raises(NotTrusted, match=rf"other users can change .*open \(mode {mode:o}\)"):
            reached(opened / "x")
    assert reached(opened / "x", guarded=False) == (str(opened), "x")
    opened.chmod(mode | stat.S_ISVTX)
    assert reached(opened / "x") == (str(opened), "x"), "nobody can change a name there but its owner"


def test_a_group_of_ones_own(tmp_path: Path) -> None:
    opened = tmp_path / "open"
    opened.mkdir()
    opened.chmod(0o770)
    if os.geteuid() != 0:
        pytest.skip("which groups this user has is not known")
    os.chown(opened, 0, 0)  # the group root, of root alone
    assert reached(opened / "x") == (str(opened), "x")


def test_directories_and_links_of_another_user(tmp_path: Path) -> None:
    theirs, link, sticky = tmp_path / "theirs", tmp_path / "link", tmp_path / "sticky"
    for path in (theirs, sticky):
        path.mkdir()
    sticky.chmod(0o1777)
    link.symlink_to(sticky)
    give_to_nobody(theirs, link)
    with pytest.raises(NotTrusted, match="theirs belongs to uid 65534, not to you"):
        reached(theirs / "x")
    assert reached(theirs / "x", guarded=False) == (str(theirs), "x")
    (sticky / "x").symlink_to(tmp_path / "victim")
    give_to_nobody(sticky / "x")
    for path in (link / "x", link, sticky / "x"):
        for guarded in (True, False):
            with pytest.raises(NotTrusted, match="is a link of uid 65534, which is not followed"):
                reached(path, guarded=guarded)
