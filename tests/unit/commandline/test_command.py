"""Lines of a shell that are about processes which are no ranks."""

from __future__ import annotations

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.shell import help_in_shell
from meshrt.commandline.table import COMMANDS
from meshrt.errors import UsageError


@pytest.mark.parametrize(
    ("line", "is_about_processes"),
    [
        ("attach 4711 4712", True),
        ("attach --name trainer 4711", True),
        ("attach --mesh=dp=2 4711 4712", True),
        ("attach trainer 3", False),
        ("attach --steal trainer 3", False),
        ("attach", False),
        ("where --pid 4711", True),
        ("where -v --pid=4711", True),
        ("where -v trainer", False),
        ("where 4711", False),
        ("ps 4711", False),
    ],
)
def test_lines_about_processes_that_are_no_ranks(line: str, is_about_processes: bool) -> None:
    name, *words = line.split()
    command = COMMANDS.find(name, Offer.SHELL)
    assert (command.meant(words) is not command) is is_about_processes
    if is_about_processes:
        with pytest.raises(UsageError, match=f"in a shell it accepts processes that are not ranks: meshrt {line}"):
            COMMANDS.parse(line, Offer.PROMPT)


def test_pids_of_an_option_end_at_the_next_one() -> None:
    given = COMMANDS.parse_words(["where", "--pid", "11", "12", "-v", "--pid", "13", "--json"], Offer.SHELL).arguments
    assert given == {"pids": [11, 12, 13], "verbose": True, "json": True}
    with pytest.raises(UsageError, match="--pid: 'x' is not a PID, the number of a process"):
        COMMANDS.parse_words(["where", "--pid", "x"], Offer.SHELL)
    with pytest.raises(UsageError, match="unexpected argument 'trainer'"):
        COMMANDS.parse_words(["where", "-v", "trainer", "--pid", "1"], Offer.SHELL)


def test_help_has_both_forms_of_a_line_in_a_shell_alone() -> None:
    assert "\n\nwhere [--pid PID ...]" in help_in_shell("where")
    assert "--pid" not in COMMANDS.help("where", Offer.PROMPT)
