"""Commands of a shell: the program, the help, exit codes."""

from __future__ import annotations

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.shell import help_in_shell, options_of, run_words
from meshrt.commandline.table import COMMANDS


def test_every_command_of_the_shell_takes_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    without = {"help", "run", "completion"}
    for command in COMMANDS.offered(Offer.SHELL):
        assert any("--program" in each.words for each in options_of(command)) == (command.name not in without)
    assert run_words(["ps", "1", "-p", "2"]) == 2
    assert "expected RUN or --program RUN, not both (1)" in capsys.readouterr().err
    assert run_words(["where", "--help"]) == 0
    assert "-p, --program RUN" in capsys.readouterr().out


def test_help_of_the_shell(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_in_shell("")
    for command in COMMANDS.offered(Offer.SHELL):
        assert f"\n  {command.name} " in text
    assert "  quit" not in text
    assert run_words(["help", "whre"]) == 2
    assert "did you mean 'where'?" in capsys.readouterr().err
    assert run_words(["p", "trainer"]) == 2
    assert capsys.readouterr().err.startswith("meshrt p: the expression is missing; usage: p ")
    assert run_words(["quit"]) == 2
    assert capsys.readouterr().err.startswith("meshrt: no command 'quit'")
