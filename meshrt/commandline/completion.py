"""What may come next in a line, from the declarations. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meshrt.commandline.command import AnyCommand, Argument, Kind, Offer, Option
from meshrt.commandline.table import AnyTable
from meshrt.selection import STATE_WORDS

__all__ = ["FILES", "Known", "candidates"]

#: Among the candidates of a shell: the name of a file is possible. No word has colons around it.
FILES = ":files:"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the program.

    Attributes:
        actors: Names of actors.
        dims: Labels of dimensions.
        stopped: The stopped ranks, by actor.
        runs: Ids of the running programs.
    """

    actors: Sequence[str] = ()
    dims: Sequence[str] = ()
    stopped: Mapping[str, Sequence[int]] = field(default_factory=dict)
    runs: Sequence[str] = ()


def candidates(table: AnyTable, words: Sequence[str], offer: Offer, known: Known) -> list[str]:
    """Return completions of the last one of ``words``, which may be empty; those that do not fit among them."""
    if len(words) < 2:
        return [each.name for each in table.offered(offer)]
    command = table.get(words[0])
    if command is None or not command.offer & offer:
        return []
    *before, last = words[1:]
    options = [option for each in command.forms(offer) for option in each.options_for(offer)]
    arguments = [each for each in command.arguments if each.offer & offer]
    within = " ".join(before).rpartition("ranks(")[2] if "ranks(" in " ".join(before) else ""
    if last.startswith("ranks(") or (within and ")" not in within):
        begin = last[: max(last.rfind("("), last.rfind(",")) + 1]
        return [begin + dim + "=" for dim in known.dims] + [begin + word for word in ("all", *STATE_WORDS)]
    has_ranks = any(each.kind is Kind.RANKS for each in arguments)
    if last.startswith("-"):
        return [word for each in options for word in each.words.split(", ")] + ["--ranks"] * has_ranks
    valued = {word: each for each in options if each.metavar for word in each.words.split(", ")}
    if before and before[-1] in valued and valued[before[-1]].const is None:
        return _of_option(valued[before[-1]], known, offer)
    if before and before[-1] == "--ranks":
        return [*(f"{dim}=" for dim in known.dims), "all", *STATE_WORDS]
    given = _given(before, valued)
    return _of_arguments(command, arguments, given, known, table, offer)


def _given(before: Sequence[str], valued: Mapping[str, Option]) -> list[str]:
    """Return the words that are arguments, and not options or their values."""
    given = []
    for earlier, word in zip(["", *before], before, strict=False):
        takes = earlier in valued and valued[earlier].const is None
        if word and not word.startswith("-") and not takes and earlier != "--ranks":
            given.append(word)
    return given


def _of_option(option: Option, known: Known, offer: Offer) -> list[str]:
    if option.metavar == "RUN":
        return list(known.runs)
    if option.metavar == "ACTOR":
        return list(known.actors)
    return [*option.choices, *_files(offer, option.metavar in ("FILE", "FOLDER", "PATH"))]


def _files(offer: Offer, takes: bool) -> list[str]:
    return [FILES] if takes and offer is Offer.SHELL else []


def _of_arguments(
    command: AnyCommand, arguments: list[Argument], given: Sequence[str], known: Known, table: AnyTable, offer: Offer
) -> list[str]:
    left = list(arguments)
    for word in given:
        while left and left[0].skips and word not in left[0].choices:
            left.pop(0)
        if left and left[0].kind is Kind.RUN and word not in known.runs:  # it may be left out before an actor
            left.pop(0)
        if left and not left[0].many:
            left.pop(0)
    found: list[str] = []
    for argument, then in zip(left, [*left[1:], None], strict=False):
        found += _values(argument, given, known, table, offer)
        if argument.required and argument.kind is not Kind.RANKS:
            break
        if argument.kind is Kind.ACTOR and then is not None and then.kind is Kind.PLACE:  # it may be left out
            continue
        if not (argument.skips or argument.kind is Kind.RUN):
            break
    return found


def _values(argument: Argument, given: Sequence[str], known: Known, table: AnyTable, offer: Offer) -> list[str]:
    match argument.kind:
        case Kind.ACTOR:
            return list(known.actors)
        case Kind.RANKS:  # a shell wants quotes around brackets
            return ["--ranks"] if offer is Offer.SHELL else ["ranks("]
        case Kind.RANK:
            return [str(rank) for rank in known.stopped.get(given[0], ())] if given else []
        case Kind.RUN:  # or its directory, or a file
            return [*known.runs, *_files(offer, True)]
        case Kind.PLACE | Kind.WORDS:
            return _files(offer, True)
        case Kind.COMMAND:
            return [each.name for each in table.offered(offer)]
    return [*argument.choices, *_files(offer, argument.convert is Path)]
