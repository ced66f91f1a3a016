"""What `linecache` shows of a file of the script, on a machine that has another one, or none."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import pytest

from meshrt.host.code import finder
from meshrt.host.code.asking import NoAnswerError
from meshrt.host.code.texts import RootTexts
from meshrt.transport.threads import RuntimeThread
from meshrt.wire.code import Code, digest_of

TEXT = b"a = 1\nb = 2\n"


class Root:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answer: Code | None = Code(1, "source", "", None, digest_of(TEXT), len(TEXT), TEXT)

    def ask(self, module: str, file: str = "", known: str = "", limit: float | None = None) -> Code:
        self.asked.append((file, known))
        if self.answer is None:
            raise NoAnswerError
        if known == self.answer.digest:
            return Code(1, "source", digest=known)
        return self.answer


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Root:
    made = Root()
    monkeypatch.setattr(linecache, "updatecache", RootTexts(made, -1).update)
    monkeypatch.setattr(linecache, "cache", {})
    monkeypatch.setattr(finder, "compared", set())
    monkeypatch.setattr("meshrt.host.code.texts.compared", finder.compared)
    return made


def test_a_file_that_is_not_here(root: Root) -> None:
    assert linecache.getline("/root/only/train.py", 2) == "b = 2\n"
    linecache.checkcache()
    assert linecache.getline("/root/only/train.py", 1) == "a = 1\n"
    assert root.asked == [("/root/only/train.py", "")]


def test_another_file_that_is_here_is_not_shown(root: Root, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("stale\n")
    assert linecache.getline(str(tmp_path / "train.py"), 1) == "a = 1\n"


def test_the_same_file_is_read_here(root: Root, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(TEXT)
    assert linecache.getline(str(tmp_path / "train.py"), 1) == "a = 1\n"
    assert linecache.cache[str(tmp_path / "train.py")][1:2] != (None,)


def test_a_file_that_the_root_does_not_have_is_shown(root: Root, tmp_path: Path) -> None:
    (tmp_path / "generated.py").write_text("own\n")
    root.answer = Code(1, "absent")
    assert linecache.getline(str(tmp_path / "generated.py"), 1) == "own\n"


def test_a_root_that_is_silent_is_not_asked_again_for_a_while(root: Root) -> None:
    root.answer = None
    for _ in range(2):
        assert linecache.getline("/root/only/train.py", 1) == ""
    assert len(root.asked) == 1


def test_not_asked_for_libraries_and_typed_code(root: Root) -> None:
    assert linecache.getline(os.__file__, 1)
    assert linecache.getline("<typed-1>", 1) == linecache.getline("<string>", 1) == ""
    assert root.asked == []


def test_the_thread_that_serves_the_root_compares_files_too(root: Root, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("stale\n")
    shown: list[str] = []
    thread = RuntimeThread(target=lambda: shown.append(linecache.getline(str(tmp_path / "train.py"), 1)))
    thread.start()
    thread.join(20)
    assert (shown, len(root.asked)) == (["a = 1\n"], 1)
    assert linecache.getline(str(tmp_path / "train.py"), 1) == "a = 1\n"
