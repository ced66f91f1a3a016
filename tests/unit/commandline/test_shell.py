"""Commands of a shell: the program, the help, exit codes."""

from __future__ import annotations

import json

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.shell import _forward, help_in_shell, run_words
from meshrt.commandline.table import COMMANDS
from tests.support.programs import ROOT


def test_every_command_of_the_shell_takes_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    without = {"help", "launch", "run", "completion", "tunnel"}
    for command in COMMANDS.offered(Offer.SHELL):
        assert any("--program" in each.words for each in command.options_for(Offer.SHELL)) == (
            command.name not in without
        )
    assert run_words(["ps", "1", "-p", "2"]) == 2
    assert "expected RUN or --program RUN, not both (1)" in capsys.readouterr().err
    assert run_words(["where", "--help"]) == 0
    assert "-p, --program RUN" in capsys.readouterr().out


def test_help_of_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_in_shell("")
    for command in COMMANDS.offered(Offer.SHELL):
        assert f"\n  {command.name} " in text
    assert "  quit" not in text
    assert text.endswith(f"\ndocs/ and examples/ are in {ROOT}")
    assert run_words(["help", "whre"]) == 2
    assert "did you mean 'where'?" in capsys.readouterr().err
    assert run_words(["p", "trainer"]) == 2
    assert capsys.readouterr().err.startswith("meshrt p: the expression is missing; usage: p ")
    assert run_words(["quit"]) == 2
    assert capsys.readouterr().err.startswith("meshrt: no command 'quit'")


@pytest.mark.parametrize(
    "words",
    [
        ("where", "--json", "--no-such"),
        ("p", "--json"),
        ("ps", "no-such-program", "--json"),
        ("logs", "--json", "-n", "x"),
        ("memory", "--format", "json", "no-such-program", "-p", "no-such-program"),
        ("memory", "--format=json", "--no-such"),
        ("top", "--json"),
        ("postmortem", "no-such-program", "--json"),
        ("debug", "--json", "no-such-program"),
    ],
)
def test_an_error_of_any_command_is_a_record(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_words(words) == 2
    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    record = json.loads(line)
    command = COMMANDS.find(words[0], Offer.SHELL)
    assert (record["schema"], record["version"]) == (command.schema.name, command.schema.version)
    assert (record["ok"], record["error"]["type"], err) == (False, "UsageError", "")
    if words[0] != "debug":
        assert (record["command"], record["line"]) == (words[0], " ".join(words))
    assert ("programs" in record) == (record["error"]["message"].find("is not a meshrt program") > 0)


def test_words_behind_a_command_without_records_are_no_option_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_words(["help", "no-such", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_an_option_in_front_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_words(["-p", "4711", "where"]) == 2
    assert "options follow the command: meshrt where -p 4711" in capsys.readouterr().err
    assert run_words(["--no-such", "4711"]) == 2
    assert "options follow the command: meshrt COMMAND --no-such 4711" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "moved"),
    [
        ("trainer self.x --json -p 4711", "--json -p 4711 trainer self.x"),
        ("trainer self.x --program=4711", "--program=4711 trainer self.x"),
        ("--json trainer x -v", "--json trainer x -v"),
        ("trainer x - p", "trainer x - p"),
        ("-p", "-p"),
        ("", ""),
    ],
)
def test_options_of_every_command_may_end_a_line(words: str, moved: str) -> None:
    assert _forward(COMMANDS.find("p", Offer.SHELL), words.split()) == moved.split()


def test_words_for_a_script_stay_where_they_are() -> None:
    assert _forward(COMMANDS.find("run", Offer.SHELL), ["a.py", "--json", "-p", "3"]) == ["a.py", "--json", "-p", "3"]
