"""The invitation in a file: private, whole, and taken from this user only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from meshrt.engine.launch.shared_file import SharedFile, directory_of
from meshrt.errors import UsageError


def test_written_read_and_removed(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "home" / "launch" / "job-1")
    assert file.fetch() is None
    file.publish(b"\x00secret")
    assert file.fetch() == b"\x00secret"
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.publish(b"another")
    assert file.fetch() == b"another" and os.listdir(file.path.parent) == ["job-1"]
    file.leave()
    file.close()
    file.close()
    assert file.fetch() is None


def test_what_others_can_read_or_replace_is_refused(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "launch" / "job-1")
    file.publish(b"secret")
    file.path.chmod(0o644)
    with pytest.raises(UsageError, match=r"not a file of this user alone \(mode 644\)"):
        file.fetch()
    file.path.chmod(0o600)
    file.path.parent.chmod(0o750)
    for use in (file.fetch, lambda: file.publish(b"secret")):
        with pytest.raises(UsageError, match=r"mode 750; expected a directory of this user with mode 700"):
            use()


def test_a_link_is_not_followed_and_other_text_refused(tmp_path: Path) -> None:
    file = SharedFile(tmp_path / "launch" / "job-1")
    file.publish(b"secret")
    file.path.write_text("not hex")
    with pytest.raises(UsageError, match="has no invitation"):
        file.fetch()
    file.path.rename(tmp_path / "other")
    file.path.symlink_to(tmp_path / "other")
    assert file.fetch() is None


def test_where_the_files_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert directory_of({}) == Path("/home/me/.meshrt/launch")
    assert directory_of({"MESHRT_RENDEZVOUS": "/shared/x"}) == Path("/shared/x")
