"""Files that ranks of other machines send: whole or not at all, their own only, and bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshrt.errors import ProtocolError
from meshrt.mesh import files
from meshrt.mesh.files import ReceivedFiles
from meshrt.wire.operations import FilePart

NAME = "post-mortem/train-m1.3-trainer-1.json"


def test_a_file_is_there_when_its_last_part_has_come(tmp_path: Path) -> None:
    received = ReceivedFiles(tmp_path, print)
    text = "x" * (FilePart.SIZE + 5) + "\u00e9"
    *first, last = FilePart.parts(NAME, text.encode())
    assert len(first) == 1
    received.take("m1", 3, first[0])
    assert not list(tmp_path.rglob("*.json"))
    received.take("m1", 3, last)
    assert (tmp_path / NAME).read_text() == text and (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
    assert list(FilePart.parts("empty", b"")) == [FilePart("empty", b"")]


def test_a_file_that_comes_again_unchanged_is_not_written_again(tmp_path: Path) -> None:
    received = ReceivedFiles(tmp_path, print)
    received.take("m1", 3, FilePart("train-m1.3.error.json", b"{}"))
    before = (tmp_path / "train-m1.3.error.json").stat().st_ino
    received.take("m1", 3, FilePart("train-m1.3.error.json", b"{}"))
    assert (tmp_path / "train-m1.3.error.json").stat().st_ino == before
    received.take("m1", 3, FilePart("train-m1.3.error.json", b"[]"))
    assert (tmp_path / "train-m1.3.error.json").read_text() == "[]"


OTHERS = """
../x-m1.3.json
/x-m1.3-1.json
post-mortem/../x-m1.3-1.json
x-m1.31-1.json
x-m2.3-1.json
.x-m1.3-.json
failure-1.json
other/x-m1.3-1.json
x-m1.3-1.log
"""


@pytest.mark.parametrize("name", OTHERS.split())
def test_only_files_of_its_own(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProtocolError, match="expected a file of rank 3 of m1"):
        ReceivedFiles(tmp_path, print).take("m1", 3, FilePart(name, b"{}"))
    assert not list(tmp_path.iterdir())


def test_what_is_too_large_or_too_much_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FILE_MAX", 100)
    monkeypatch.setattr(files, "_MOST", 3)
    told: list[str] = []
    received = ReceivedFiles(tmp_path, told.append)
    for _ in range(3):
        received.take("m1", 3, FilePart("a-m1.3-1.json", b"x" * 60, more=True))
    for number in range(2, 7):
        received.take("m1", 3, FilePart(f"a-m1.3-{number}.json", b"{}"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-m1.3-2.json", "a-m1.3-3.json"]
    assert len(told) == 1 and "too large" in told[0]


def test_a_disk_that_is_full_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    received = ReceivedFiles(tmp_path / "missing" / "deeper", told.append)
    for number in range(2):
        received.take("m1", 3, FilePart(f"a-m1.3-{number}.json", b"{}"))
    assert len(told) == 1 and "cannot be written" in told[0]
