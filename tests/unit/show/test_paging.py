"""When the pager is asked, and that what it does not take is shown without it."""

from __future__ import annotations

import io
import os
import shlex
import sys
from pathlib import Path

import pytest

from meshrt.show.paging import PAGER, write_paged

LONG = "".join(f"line {number} é\n" for number in range(100))

#: Pagers that are none, are not there, or fail.
NONE = ["", " ", "cat", "/no/such/program -x", "less 'unclosed", "false", "sed s/a/b/ | tail"]


class Terminal(io.StringIO):
    """A stream that says to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 24 lines and 20 columns."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 24)))
    monkeypatch.delenv(PAGER, raising=False)
    monkeypatch.delenv("PAGER", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def copies_to(path: Path) -> str:
    """Return a pager that writes what it reads, and what ``LESS`` is, into a file."""
    code = f"import os, sys; open({str(path)!r}, 'w', encoding='utf-8').write(os.environ['LESS'] + sys.stdin.read())"
    return shlex.join([sys.executable, "-X", "utf8", "-c", code])


@pytest.mark.parametrize("name", [PAGER, "PAGER"])
def test_what_does_not_fit_is_shown_by_the_pager(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, copies_to(tmp_path / "shown"))
    for text in (LONG, "x" * 20 * 30 + "\n"):
        terminal = Terminal()
        write_paged(terminal, text)
        assert (terminal.getvalue(), (tmp_path / "shown").read_text("utf-8")) == ("", f"FRX{text}")


def test_what_fits_and_what_goes_to_a_file_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGER, copies_to(tmp_path / "shown"))
    for stream, text in ((Terminal(), "one\ntwo\n"), (io.StringIO(), LONG)):
        write_paged(stream, text)
        assert stream.getvalue() == text
    assert not (tmp_path / "shown").exists()


@pytest.mark.parametrize("pager", NONE)
def test_without_a_pager_the_text_is_written(pager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGER, pager)
    terminal = Terminal()
    write_paged(terminal, LONG)
    assert terminal.getvalue() == LONG


def test_a_pager_that_is_left_early_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PAGER, "true")
    write_paged(Terminal(), LONG * 10_000)


def test_a_terminal_that_can_do_nothing_has_no_pager_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    write_paged(terminal, LONG)
    assert terminal.getvalue() == LONG
    monkeypatch.setenv("PAGER", copies_to(tmp_path / "shown"))
    write_paged(Terminal(), LONG)
    assert "line 99" in (tmp_path / "shown").read_text("utf-8")
