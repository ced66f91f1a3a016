"""Options of all commands: one spelling, and one placeholder, for what means the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from meshrt.commandline.command import Offer, Option
from meshrt.commandline.numbers import duration, seconds
from meshrt.commandline.table import COMMANDS
from meshrt.debug.dap.router.console_words import OWN

__all__: list[str] = []

#: Short spellings that have different long spellings, and why.
SHORT = {
    "-n": "a number of what the command shows or starts, as of head and of mpirun; --nproc-per-node is that of torchrun"
}
#: Long spellings that have different placeholders, and why.
LONG = {
    "--diff": "a rank is compared with the other ranks, memory with a file of earlier",
    "--pid": "`debug` accepts any name of one program, `where` pids of processes that are not ranks",
    "--sort": "the columns of `top`; `memory` has orders that are not columns",
}


def options() -> Iterator[tuple[str, Option]]:
    """Yield the options of all commands, each with its command."""
    for command in (*COMMANDS.all(), *OWN.all()):
        for form in command.forms(Offer.ALL):
            for option in form.options_for(Offer.ALL):
                yield form.name, option


def words_of(option: Option) -> tuple[list[str], list[str]]:
    """Return the short and the long spellings of an option."""
    words = option.words.split(", ")
    return [word for word in words if not word.startswith("--")], [word for word in words if word.startswith("--")]


def differing(found: dict[str, dict[str, list[str]]]) -> dict[str, dict[str, list[str]]]:
    """Return the spellings for which there are several values, each with the commands that have it."""
    return {word: dict(values) for word, values in found.items() if len(values) > 1}


def test_a_short_spelling_has_one_long_spelling() -> None:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, option in options():
        short, long = words_of(option)
        for word in short:
            found[word][", ".join(long)].append(name)
    assert {"-v", "-p", "-r", "-f"} <= found.keys()
    assert set(found["-v"]) == {"--verbose"} and len(found["-v"]["--verbose"]) >= 8
    assert differing(found).keys() == SHORT.keys(), differing(found)


def test_a_long_spelling_has_one_placeholder() -> None:
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, option in options():
        for word in words_of(option)[1]:
            found[word][option.metavar].append(name)
    assert differing(found).keys() == LONG.keys(), differing(found)


def test_the_same_value_has_one_placeholder() -> None:
    timed = [
        (name, option.words, option.metavar) for name, option in options() if option.convert in (seconds, duration)
    ]
    assert len(timed) >= 6
    assert [each for each in timed if each[2] != "SECONDS"] == []
    ranks = [(name, option.words, option.metavar) for name, option in options() if option.words == "--ranks"]
    assert ranks == [("postmortem", "--ranks", "SELECTION")]
