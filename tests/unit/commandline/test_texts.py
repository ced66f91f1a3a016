"""Help: the usage, what the arguments mean, and lists of commands."""

from __future__ import annotations

import pytest

from meshrt.commandline.command import AnyCommand, Argument, Command, Group, Kind, Offer, Option, ranks, run
from meshrt.commandline.table import COMMANDS
from meshrt.commandline.texts import help_of, ordered, overview

SHOW: AnyCommand = Command(
    "show",
    "show it",
    group=Group.LOOK,
    arguments=(run(), Argument("actor", Kind.ACTOR, required=True), ranks(), Argument("more", many=True)),
    options=(
        Option("-v, --verbose", "all of it", counts=True),
        Option("--diff", "compare " * 20, metavar="RANK", const=-1),
        Option("--watch", "again", metavar="SECONDS", offer=Offer.SHELL),
    ),
    aliases=("sh",),
    details="One line.\nAnother one.",
)


def test_a_usage_has_what_can_be_typed_there() -> None:
    assert SHOW.usage(Offer.PROMPT) == "show [-v] [--diff [RANK]] ACTOR [ranks(...)] [MORE ...]"
    assert SHOW.usage(Offer.SHELL) == "show [-v] [--diff [RANK]] [--watch SECONDS] [RUN] ACTOR [ranks(...)] [MORE ...]"


def test_help() -> None:
    lines = help_of(SHOW, Offer.PROMPT).splitlines()
    assert lines[:5] == [f"{SHOW.usage(Offer.PROMPT)}  (also: sh)", "show it", "One line.", "Another one.", ""]
    assert "  -v, --verbose  all of it" in lines and "--watch" not in "\n".join(lines)
    assert all(len(line) <= 120 for line in lines)
    assert "-p, --program RUN" in help_of(SHOW, Offer.SHELL) and "-p, --program" not in help_of(SHOW, Offer.PROMPT)


def test_commands_are_listed_by_group() -> None:
    other: AnyCommand = Command("again", "do it again")
    assert overview([other, SHOW]) == ["show   show it", "again  do it again"]
    assert overview([SHOW], headings=True) == ["", "show what ranks do:", "  show  show it"]
    assert [each.name for each in ordered([other, SHOW])] == ["show", "again"]


def test_every_command_has_a_usage_that_begins_with_its_name() -> None:
    for offer in (Offer.PROMPT, Offer.SHELL, Offer.CONSOLE):
        for command in COMMANDS.offered(offer):
            assert command.usage(offer).split()[0] == command.name


@pytest.mark.parametrize("width", [50, 80, 100])
def test_help_fits_the_terminal(width: int) -> None:
    for offer in (Offer.PROMPT, Offer.SHELL):
        offered = COMMANDS.offered(offer)
        lines = overview(offered, headings=True, width=width)
        for command in offered:
            lines += help_of(command, offer, width=width).splitlines()
        assert [line for line in lines if len(line) > width] == []
    words = [help_of(SHOW, Offer.SHELL, width=each).split() for each in (width, 118)]
    assert words[0] == words[1]


def test_a_text_is_filled_again_and_an_example_is_not() -> None:
    details = "it says much,\n" * 9 + "and goes on.\n\n  meshrt show " + "A " * 50
    told: AnyCommand = Command("told", "tell it", details=details)
    first, second, blank, example, further = help_of(told, Offer.PROMPT, width=80).splitlines()[2:]
    assert f"{first} {second}" == "it says much, " * 9 + "and goes on." and len(first) > 70 and not blank
    assert example.startswith("  meshrt show A A") and further.startswith("    A A")
