"""What a person typed becomes the arguments of a command: the one place where command lines are parsed.

A line of a prompt, or the words that a shell has passed, is split into words; ``ranks(...)`` is one word, whatever is
in it. argparse parses the words, with a parser that is made from the declaration. What argparse does not know of is
done here: the text up to the end of a line (an expression, a condition), which options have to come in front of, and
marks below the line that point at a mistake in a selection.

Errors are UsageError (`SelectionError` for ranks), and say what was expected.
"""

from __future__ import annotations

import argparse
import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn

from meshrt import selection  # its grammar is loaded when it is used
from meshrt.commandline.command import AnyCommand, Argument, Converter, Kind, Offer, Option, Value, Values
from meshrt.commandline.line import RANKS, Line, is_expression
from meshrt.errors import SelectionError, UsageError

__all__ = ["arguments_of"]

_HELP = ("-h", "--help")
_ACTOR = re.compile(r"[\w-]+(?:@[\w.-]+)?(?:/[\w.-]+)?")
#: A shell passes it as one word where it is in quotes as a whole.
_WITH_RANKS = re.compile(rf"(\S+)\s+({RANKS.pattern}.*)")
_PLACE = re.compile(r'("[^"]*"(?::\d+)?|[^\s,]*)')
_VARIABLE = re.compile(r"[\w-]+\.")
_OPTION_BEHIND = re.compile(r"\s(--?[a-z]+)(?:\s[^'\"]*)?$")


def arguments_of(command: AnyCommand, line: Line, offer: Offer) -> Values | None:
    """Return the arguments of a command.

    Args:
        line: Of which the command has been read.
        offer: Where the line was typed.
    Returns:
        The arguments by name; None: ``--help`` was among them.
    Raises:
        UsageError: Arguments are missing or not valid.
    """
    return _Parsing(command, line, _grammar_of(command, offer)).run()


class _Help(Exception):
    """``--help`` is among the words."""


class _HelpAction(argparse.Action):
    def __call__(self, *_: object) -> NoReturn:
        raise _Help


class _Parser(argparse.ArgumentParser):
    """argparse, whose errors are UsageError."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


class _Grammar:
    """The lines of a command, where it is offered. Any thread.

    Attributes:
        arguments, options: Those that can be used there.
        has_ranks: Ranks are among the arguments.
        has_text: A text is among them that is not split into words.
        usage: How it is written.
    """

    def __init__(self, command: AnyCommand, offer: Offer) -> None:
        self.arguments = [each for each in command.arguments if each.offer & offer]
        self.options = command.options_for(offer)
        self.has_ranks = any(each.kind is Kind.RANKS for each in self.arguments)
        self.has_text = any(each.kind.is_rest or each.kind is Kind.PLACE for each in self.arguments)
        self.usage = command.usage(offer)
        self._parser = self._made()
        #: argparse changes its parser while it parses.
        self._lock = threading.Lock()

    def parse(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return what argparse finds in the words, and the words that have no place. Raises UsageError."""
        mixed = any(word.startswith("-") for word in words)
        with self._lock:
            # Among arguments that may be missing, options may be anywhere: argparse looks twice then.
            return self._parser.parse_known_intermixed_args(words) if mixed else self._parser.parse_known_args(words)

    def _made(self) -> _Parser:
        parser = _Parser(prog="", usage=self.usage.replace("%", "%%"), add_help=False)
        parser.add_argument(*_HELP, action=_HelpAction, nargs=0, dest=argparse.SUPPRESS)
        for argument in self.arguments:
            if argument.kind is Kind.RANKS:
                parser.add_argument("--ranks", metavar="SELECTION")
            elif not argument.kind.is_rest:
                nargs = "*" if argument.many else "?"  # what is missing is told behind an unknown option
                metavar = argument.metavar or argument.name.upper()
                parser.add_argument(argument.name, nargs=nargs, metavar=metavar, type=_converted(argument))
        groups: Values = {"": parser}
        for option in self.options:
            if option.excludes not in groups:
                groups[option.excludes] = parser.add_mutually_exclusive_group()
            _add(groups[option.excludes].add_argument, option)
        return parser


@functools.cache
def _grammar_of(command: AnyCommand, offer: Offer) -> _Grammar:
    """Return the grammar of a command. It is kept: argparse takes ten times as long to make a parser as to use it."""
    return _Grammar(command, offer)


class _Parsing:
    """One line and the command that it is for."""

    def __init__(self, command: AnyCommand, line: Line, grammar: _Grammar) -> None:
        self._line = line
        self._grammar = grammar
        self._arguments = grammar.arguments
        self._options = grammar.options
        self._has_ranks = grammar.has_ranks
        self._command = command
        #: What argparse gets, and the values that it does not parse.
        self._words: list[str] = []
        self._found: Values = {}

    def run(self) -> Values | None:
        try:
            if self._grammar.has_text:
                self._read_head()
            else:
                self._read_words()
            values = self._values()
            if self._command.check is not None:
                self._command.check(values)
        except _Help:
            return None
        except SelectionError:
            raise
        except UsageError as error:
            text = str(error)
            raise UsageError(text if "usage: " in text else f"{text}; usage: {self._grammar.usage}") from None
        return values

    # -- words

    def _read_words(self) -> None:
        """Read a line that is words alone: options may be anywhere."""
        while self._line.more:
            if self._words[-1:] == ["--ranks"]:
                self._words.append(self._line.selection())
            elif self._has_ranks and self._line.at_ranks():
                self._words.append(f"--ranks={self._line.ranks()}")
            else:
                self._words.append(self._line.take())

    def _read_head(self) -> None:
        """Read a line that ends with a text: options are directly behind the command."""
        if self._arguments[0].kind is not Kind.WORDS or self._line.peek() in _HELP:
            self._read_options()
        else:
            self._read_known_options()
        following = [*(each.kind for each in self._arguments[1:]), None]
        for argument, then in zip(self._arguments, following, strict=True):
            if argument.kind is Kind.RANKS:
                self._read_options(behind=True)
                self._read_ranks(argument)
            elif argument.kind is Kind.PLACE:
                end = self._line.at + len(_place(self._line.left))
                self._words.append(_needed(argument, self._line.move(end).replace('"', "")))
            elif argument.kind is Kind.WORDS:
                self._found[argument.name] = words = self._line.take_all()
                _needed(argument, " ".join(words))
            elif argument.kind.is_rest:
                if argument.kind is Kind.VARIABLE:  # no name of a variable begins like an option
                    self._read_options()
                self._found[argument.name] = self._rest(argument)
            else:
                left_out = self._is_left_out(argument, then)
                self._words.append("" if left_out else _needed(argument, self._line.take()))

    def _read_known_options(self) -> None:
        """Read the options in front of words, which may begin with a dash, too."""
        known = _words_of(self._options)
        takes = _words_of([each for each in self._options if each.metavar])
        while self._line.more and self._line.peek().partition("=")[0] in known:
            self._words.append(self._line.take())
            if self._words[-1] in takes and self._line.more:
                self._words.append(self._line.take())

    def _read_options(self, *, behind: bool = False) -> None:
        """Read the options that come next; ``behind`` an actor only long ones that exist: ``-v`` may be a value."""
        known = _words_of(self._options) | {"--ranks"}
        takes = _words_of([each for each in self._options if each.metavar])
        takes |= {"--ranks"} if self._has_ranks else set()
        while self._line.more and re.match(r"--?\w", self._line.peek()):
            if behind and not (self._line.peek().startswith("--") and self._line.peek() in known):
                break
            option = self._line.take()
            if option in _HELP:
                raise _Help
            if not any(word.startswith(option) or option.startswith(word) for word in known):
                raise self._misplaced(option)
            self._words.append(option)
            if option in takes and self._line.more:
                self._words.append(self._line.selection() if option == "--ranks" else self._line.take())

    def _is_left_out(self, argument: Argument, then: Kind | None) -> bool:
        """Whether the next word is not this argument, which is the name of an actor, but what follows it."""
        if argument.kind is not Kind.ACTOR:
            return False
        if then is Kind.PLACE:  # `break trainer train.py:88`: the first word is the actor
            word = _place(self._line.left)
            rest = self._line.left[len(word) :].strip()
            return not rest or rest[0] == "," or any(sign in word for sign in ':."') or bool(RANKS.match(rest))
        if then is Kind.VARIABLE:
            return self._line.at_ranks() or _VARIABLE.match(self._line.left) is not None
        return self._has_ranks and self._line.at_ranks()

    def _read_ranks(self, argument: Argument) -> None:
        if self._line.at_ranks() or (argument.required and "--ranks" not in self._words):
            self._words += ["--ranks", self._line.ranks()]

    def _rest(self, argument: Argument) -> str:
        """Return the text up to the end of the line, or up to ``ranks(...)`` there."""
        behind = any(each.kind is Kind.RANKS for each in self._arguments[self._arguments.index(argument) :])
        end = self._last_ranks() if behind else len(self._line.text)
        begin, begins_with_comma = self._line.at, self._line.left.startswith(",")
        text = self._line.move(end).strip()
        match argument.kind:
            case Kind.CONDITION if RANKS.match(text):
                raise self._damaged_ranks(begin)
            case Kind.CONDITION if text and not begins_with_comma:
                raise UsageError("a comma must precede the condition")
            case Kind.CONDITION:
                return text[1:].strip()
            case Kind.RANK if not text and self._words[-1].isdigit():
                raise UsageError("the actor is missing")
            case Kind.RANK if re.fullmatch(r"[^\W\d]\w*", text):
                raise UsageError(
                    f"{text!r} is not a valid rank: a number as `list` shows it, or coordinates as in hosts=3,gpus=1"
                )
            case Kind.VARIABLE if match := _OPTION_BEHIND.search(text):
                raise UsageError(f"options such as {match[1]} must directly follow the command")
            case Kind.VARIABLE if text and not _VARIABLE.match(text):
                raise self._misplaced(text)
            case Kind.EXPRESSION if text and not is_expression(text):
                self._refuse_slip(text)
        return _needed(argument, text)

    def _last_ranks(self) -> int:
        """Return where the ``ranks(...)`` begins that ends the line, or the end of the line.

        Conditions may have parentheses and the word ranks, too. Raises SelectionError: invalid ranks.
        """
        line, problem = self._line, None
        for match in RANKS.finditer(line.text, line.at):
            if match.start() > line.at and not line.text[match.start() - 1].isspace():
                continue
            try:
                _, end = selection.parse_prefix(line.text, match.start())
            except SelectionError as error:
                problem = error
                continue
            if not line.text[end:].strip():
                return match.start()
        if problem is not None and line.text.endswith(")") and not line.left.startswith(","):
            raise problem
        return len(line.text)

    def _damaged_ranks(self, begin: int) -> UsageError:
        """Return what is wrong with the ``ranks(...)`` at ``begin``, or behind it."""
        try:
            _, end = selection.parse_prefix(self._line.text, begin)
        except SelectionError as error:
            return error
        return self._misplaced(self._line.text[end:].strip(), has_ranks=True)

    def _refuse_slip(self, text: str) -> None:
        """Raise UsageError if an expression, which is not valid Python, looks like misplaced options or ranks."""
        if re.match(r"-(-diff|-verbose|v)\b", text):
            raise UsageError("options must directly follow the command")
        if "--ranks" not in self._words and re.match(r"\d+\s+[\w(]", text):
            raise UsageError(f"write ranks as ranks({text.split()[0]})")
        if "--ranks" not in self._words and re.match(r"rank\s*\([^)]*\)\s*[\w\"'([{]", text):
            raise UsageError(f"did you mean ranks{text[4:]}?")

    # -- argparse

    def _values(self) -> Values:
        self._refuse_elsewhere()
        given, extras = self._grammar.parse(self._words)
        values = {name: value for name, value in vars(given).items() if value is not None}
        for argument in self._arguments:
            if argument.kind is Kind.RANKS:
                values["ranks"] = _selection(values.get("ranks", ""))
        extras += self._skipped(values)
        if extras:
            raise self._misplaced(extras[0], bool(values.get("ranks")))
        for argument in self._arguments:
            if argument.name not in {*values, *self._found} and argument.kind is not Kind.RANKS:
                _needed(argument, "")
        missing: Values = {each.name: [] if each.many else each.default for each in self._arguments}
        for each in self._options:  # several options may set one value: the first has its default
            missing.setdefault(each.key, each.default if each.metavar or each.counts else False)
        return {**missing, **values, **self._found}

    def _refuse_elsewhere(self) -> None:
        """Raise UsageError for an option that the command has in a shell only."""
        here = _words_of(self._options)
        there = _words_of(self._command.options_for(Offer.SHELL)) - here
        for word in (each.partition("=")[0] for each in self._words):
            if word in there:
                shown = f"meshrt {self._command.name} {word}"
                raise UsageError(f"{word} is an option of the shell, not of this prompt; in a shell: {shown} ...")

    def _skipped(self, values: Values) -> list[str]:
        """Move words that are none of the choices of an argument to the next one. Returns those that have no place."""
        for argument, then in zip(self._arguments, self._arguments[1:], strict=False):
            word = values.get(argument.name, "")
            if argument.skips and word and word not in argument.choices:
                values[argument.name], word, left = "", values.get(then.name, ""), word
                values[then.name] = _converted(then)(left)
                return [word] if word else []
        return []

    def _misplaced(self, text: str, has_ranks: bool = False) -> UsageError:
        if re.match(r"--?\w", text):
            words = [word for each in self._options for word in each.words.split(", ")]
            words += ["--ranks"] * self._has_ranks
            there = f"; expected one of {', '.join(words)}" if words else "; this command has no options"
            return UsageError(f"no option {text!r}{selection.near_miss(text, words) or there}")
        if self._has_ranks and not has_ranks and re.fullmatch(r"[\d:,]+", text) and _is_selection(f"ranks({text})"):
            return UsageError(f"write ranks as ranks({text})")
        return UsageError(f"unexpected argument {text!r}")


def _words_of(options: Sequence[Option]) -> set[str]:
    return {word for each in options for word in each.words.split(", ")}


def _add(add: Callable[..., object], option: Option) -> None:
    words, facts = option.words.split(", "), {"dest": option.key}
    if option.counts:
        add(*words, action="count", **facts)
    elif not option.metavar:
        add(*words, action="store_const", const=True if option.sets is None else option.sets, **facts)
    elif option.several:
        add(*words, action="extend", nargs="+", metavar=option.metavar, type=_converted(option), **facts)
    elif option.many:
        add(*words, action="append", metavar=option.metavar, type=_converted(option), **facts)
    else:
        nargs = {} if option.const is None else {"nargs": "?", "const": option.const}
        add(*words, metavar=option.metavar, type=_converted(option), **facts, **nargs)


def _converted(each: Argument | Option) -> Converter:
    """Return the function that makes the value of a word. Its errors name the option."""
    option = f"{each.words.split(', ')[-1]}: " if isinstance(each, Option) else ""

    def convert(word: str) -> Value:
        try:
            if isinstance(each, Argument):
                _check_word(each, word)
                return word if each.skips else _value(each, each.metavar or each.name.upper(), word)
            return _value(each, each.metavar, word)
        except UsageError as error:
            raise UsageError(f"{option}{error}") from None

    return convert


def _check_word(argument: Argument, word: str) -> None:
    """Raise UsageError for a word that cannot be the name of an actor, or of a program."""
    if argument.kind in (Kind.ACTOR, Kind.RUN) and (match := _WITH_RANKS.fullmatch(word)):
        raise UsageError(f"{word!r} is one word; expected two words: {match[1]} '{match[2]}'")
    if argument.kind is Kind.ACTOR and word and not _ACTOR.fullmatch(word):
        raise UsageError(f"{word!r} is not a valid name of an actor")


def _value(each: Argument | Option, what: str, word: str) -> Value:
    if each.choices and word not in each.choices:
        near = selection.near_miss(word, each.choices) or f"; expected one of {', '.join(each.choices)}"
        raise UsageError(f"no {what} {word!r}{near}")
    try:
        return word if each.convert is None else each.convert(word)
    except UsageError:
        raise
    except ValueError:
        raise UsageError(f"{word!r} is not a valid {what}") from None


def _place(text: str) -> str:
    """Return the word at the begin of a text, which a blank or a comma ends; one in quotes may have them."""
    match = _PLACE.match(text)
    return match[0] if match is not None else ""


def _needed(argument: Argument, text: str) -> str:
    if argument.required and not text:
        if argument.choices:
            raise UsageError(f"expected one of {', '.join(argument.choices)}")
        named = argument.kind in (Kind.PLACE, Kind.ACTOR)
        what = argument.name if named else re.split(r"[ |]", argument.shown)[0].lower()
        raise UsageError(f"the {what} is missing")
    return text


def _selection(text: str) -> str:
    """Return a selection as the grammar has it: at a shell it may be typed without brackets, which need quotes."""
    text = text.strip()
    if not text:
        return ""
    selection.parse(text)
    return text if text.startswith("ranks") else f"ranks({text})"


def _is_selection(text: str) -> bool:
    try:
        selection.parse_prefix(text, 0)
    except SelectionError:
        return False
    return True
