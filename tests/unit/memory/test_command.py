"""The options of ``meshrt memory``, on files: no program is asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshrt.commandline.shell import run_words
from meshrt.memory.document import plain, read, write
from tests.unit.memory.documents import MIB, document, rank, variable


def main(words: list[str]) -> int:
    return run_words(["memory", *words])


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A view with variables, and without references."""
    path = tmp_path / "view.json"
    write(path, document([rank(0, MIB), rank(1, 2 * MIB)], {0: [variable("self.x", 5)], 1: []}))
    return path


@pytest.mark.parametrize(
    "options",
    [
        ["1234"], ["trainer"], ["--actor", "trainer"], ["--ranks", "0"], ["--holders", "ab"], ["--holders", ""],
        ["-p", "1234"], ["--frames"], ["--exact"],
        ["--budget", "0"], ["--watch"], ["--save", "x"], ["--vars", "self.x"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_file_is_not_asked(options: list[str], kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--open", str(kept), *options]) == 2
    out, complaint = capsys.readouterr()
    assert not out and "--open shows a file as it was saved; expected --open without RUN, ACTOR, --ranks, " in complaint


@pytest.mark.parametrize("words", [["-p", "nosuch"], ["-p", "nosuch", "trainer"], ["nosuch"]], ids=" ".join)
def test_another_program_is_not_asked_in_place_of_one_that_is_not_there(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, complaint = capsys.readouterr()
    assert not out and "meshrt program" in complaint, complaint


def test_formats(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for options in ([], ["--format", "table"], ["--json"], ["--format", "json"], ["--format=json", "--by", "host"]):
        assert main(["--open", str(kept), *options]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and shown[0].startswith("RANK ")
    assert json.loads(shown[2]) == json.loads(shown[3]) == plain(read(kept))
    assert json.loads(shown[4]).keys() - json.loads(shown[3]).keys() == {"groups"}


def test_what_a_file_has_not_is_not_shown(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--open", str(kept), "--vars", "--by", "type"]) == 0
    assert main(["--open", str(kept), "--refs"]) == 2
    assert f"{kept} was saved without --refs: it contains no references" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan", "1e300"])
def test_a_view_is_watched_by_seconds_that_are_some(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--watch={seconds}"]) == 2
    assert f"--watch: '{seconds}' is not a valid number of seconds above 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--by", "x"], "no WHAT 'x'; expected one of host, actor"),
        (["--sort", "x"], "no ORDER 'x'; expected one of size"),
        (["--units", "MB"], "no UNITS 'MB'; did you mean 'MiB'?"),
        (["-n", "0"], "'0' is not a valid number of rows; expected 1 or more"),
    ],
    ids=" ".join,
)
def test_options_of_a_look_that_are_not_valid(
    options: list[str], told: str, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--open", str(kept), *options]) == 2
    out, complaint = capsys.readouterr()
    assert not out and told in complaint
