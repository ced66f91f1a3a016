"""The folder of commands is the table: what holds for every one of its modules."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from meshrt import commands
from meshrt.commandline.command import Command, Kind, Offer
from meshrt.commandline.shell import PROMPT, help_in_shell
from meshrt.commandline.table import COMMANDS
from meshrt.errors import UsageError
from tests.support.programs import environment

FOLDER = Path(commands.__file__).parent


def test_each_module_is_a_command_of_its_name() -> None:
    names = {path.stem.rstrip("_") for path in FOLDER.glob("[a-z]*.py")}
    assert {command.name for command in COMMANDS.all()} == names
    words = Counter(word for command in COMMANDS.all() for word in (command.name, *command.aliases))
    assert [word for word, count in words.items() if count > 1] == []


@pytest.mark.parametrize("command", COMMANDS.all(), ids=lambda command: command.name)
def test_a_declaration_is_whole(command: Command[Any]) -> None:
    assert command.summary and not command.summary.endswith(".")
    assert command.run is not None or command.offer is Offer.SHELL
    assert command.run is None or command.record or command.name == "quit"
    for name in filter(None, (command.main, PROMPT)):
        module, _, function = name.partition(":")
        assert callable(getattr(importlib.import_module(module), function))
    for offer in Offer.SHELL, Offer.PROMPT:
        if command.offer & offer:
            keys = [each.key for each in command.options if each.offer & offer]
            keys += [each.name for each in command.arguments if each.offer & offer]
            assert [key for key, count in Counter(keys).items() if count > 1] in ([], ["format"])
            arguments = [each for each in command.arguments if each.offer & offer]
            assert all(each.kind is not Kind.RUN for each in arguments) or offer is Offer.SHELL
    assert all(each.help for each in command.options)
    assert (
        all(len(line) <= 120 for line in help_in_shell(command.name).splitlines())
        if (command.offer & Offer.SHELL)
        else True
    )


def test_a_command_is_loaded_when_its_word_is_typed() -> None:
    code = (
        "import sys; from meshrt.commandline.table import COMMANDS; COMMANDS.get('status')\n"
        "print(*sorted(name for name in sys.modules if name.startswith('meshrt.commands.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["meshrt.commands.status"]


def test_an_unknown_word_names_what_is_near() -> None:
    for word, offer, said in (
        ("staus", Offer.PROMPT, "did you mean 'status'?"),
        ("top", Offer.PROMPT, "'top' is a command of the shell: meshrt top"),
        ("quti", Offer.SHELL, "expected one of attach, "),
        ("__init__", Offer.SHELL, "no command '__init__'"),
        ("break_", Offer.SHELL, "did you mean 'break'?"),
    ):
        with pytest.raises(UsageError) as caught:
            COMMANDS.find(word, offer)
        assert said in str(caught.value)
