"""What a command is: its words, its arguments, what it runs, and what is said of it.

A command is declared once. The prompt, the shell, the console of an IDE, completion, help and the documentation are
made from the declaration. All of this is data: it loads nothing that the command needs when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import Any, Generic, TypeVar

from meshrt.show.records import DEBUG, Schema

__all__ = [
    "AnyCommand",
    "Argument",
    "Arguments",
    "Command",
    "Converter",
    "Group",
    "Kind",
    "Offer",
    "Option",
    "Outcome",
    "Value",
    "Values",
    "ranks",
    "run",
]

#: The value of an argument: what it is, only the declaration says.
Value = Any
#: The parsed arguments of a line, by name; `Values` while they are completed.
Arguments = Mapping[str, Value]
Values = dict[str, Value]
#: Returns the value of a word.
Converter = Callable[[str], Value]

#: More options than these are one word in a usage.
_FEW = 6

#: What a command may use when it runs.
C = TypeVar("C")


class Kind(Enum):
    """What an argument is. Completion and parsing follow from it.

    Attributes:
        WORD: One word.
        ACTOR: Name of an actor.
        RANKS: ``ranks(...)``, which may have blanks in it, or the option ``--ranks SELECTION``.
        RANK: A number, or coordinates, up to the end of the line.
        RUN: A program: its id, its pid or its run directory. Only in a shell: a prompt has its program.
        COMMAND: Name of a command.
        PLACE: ``FILE:LINE`` or ``ACTOR.METHOD``: a word that a comma ends, too; a file name may be in quotes.
        VARIABLE: Name of a variable, up to ``ranks(...)`` or the end of the line.
        CONDITION: Behind a comma, up to ``ranks(...)`` or the end of the line.
        EXPRESSION: Python, up to the end of the line.
        LINE: Any text, up to the end of the line.
        WORDS: All words that are left, with their dashes: a list.
    """

    WORD = auto()
    ACTOR = auto()
    RANKS = auto()
    RANK = auto()
    RUN = auto()
    COMMAND = auto()
    PLACE = auto()
    VARIABLE = auto()
    CONDITION = auto()
    EXPRESSION = auto()
    LINE = auto()
    WORDS = auto()

    @property
    def is_rest(self) -> bool:
        """Whether the argument is the text up to the end of the line, and not a word."""
        return self in (Kind.RANK, Kind.VARIABLE, Kind.CONDITION, Kind.EXPRESSION, Kind.LINE, Kind.WORDS)


class Offer(Flag):
    """Where a command, or one of its options, can be used.

    Attributes:
        PROMPT: At the debugger's prompt, and at the prompt of a rank.
        SHELL: As ``meshrt COMMAND``.
        CONSOLE: In the console of an IDE.
    """

    PROMPT = auto()
    SHELL = auto()
    CONSOLE = auto()
    ALL = PROMPT | SHELL | CONSOLE


class Group(Enum):
    """What commands are for. Help shows them in this order; the value is the heading."""

    LOOK = "show what ranks do"
    VALUES = "show and change values"
    CONTROL = "stop and resume ranks"
    BREAKS = "breakpoints"
    AFTERWARDS = "failures"
    PROGRAMS = "programs"
    BASIC = "other"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument that its position tells.

    Attributes:
        name: Key of its value.
        required: False: it may be missing, and is ``""`` then (an empty list with ``many``).
        metavar: How it is written in the usage; "": the name in capital letters.
        choices: The words that it can be; others are refused.
        skips: A word that is none of the choices is the next argument.
        many: It is all words that are left, a list.
        convert: Returns the value of a word; raises UsageError. A missing argument is not converted.
        default: The value of a missing argument.
        offer: Where it can be used.
    """

    name: str
    kind: Kind = Kind.WORD
    help: str = ""
    required: bool = False
    metavar: str = ""
    choices: tuple[str, ...] = ()
    skips: bool = False
    many: bool = False
    convert: Converter | None = None
    default: Value = ""
    offer: Offer = Offer.ALL

    @property
    def shown(self) -> str:
        """How it is written in a usage."""
        shown = self.metavar or ("ranks(...)" if self.kind is Kind.RANKS else self.name.upper())
        return f"{shown} ..." if self.many else shown


@dataclass(frozen=True, slots=True)
class Option:
    """An argument that begins with a dash.

    Attributes:
        words: ``"-n"``, ``"-r, --reverse"``.
        name: Key of its value; "": the last of the words.
        metavar: What is written behind it; "": nothing, its value is True or False.
        const: Its value without a word behind it; None: the word is required.
        default: The value of a missing option; a flag has False.
        sets: The value of a flag that is given, instead of True.
        counts: The value is how often the flag is given.
        many: It may be repeated; the value is a list, or None.
        several: All words behind it up to the next option are its value, a list; None: it is missing.
        choices: The words that can follow it.
        convert: Returns the value of the word behind it; raises UsageError, or ValueError.
        excludes: Name of a set of options of which only one can be given.
        offer: Where it can be used.
    """

    words: str
    help: str = ""
    name: str = ""
    metavar: str = ""
    const: Value = None
    default: Value = None
    sets: Value = None
    counts: bool = False
    many: bool = False
    several: bool = False
    choices: tuple[str, ...] = ()
    convert: Converter | None = None
    excludes: str = ""
    offer: Offer = Offer.ALL

    @property
    def key(self) -> str:
        """Key of its value."""
        return self.name or self.words.split(", ")[-1].lstrip("-").replace("-", "_")

    @property
    def shown(self) -> str:
        """How it is written in a usage."""
        value = f" [{self.metavar}]" if self.const is not None else f" {self.metavar}" + " ..." * self.several
        return self.words.split(", ")[0] + (value if self.metavar else "")

    @property
    def written(self) -> str:
        """How it is written where it is explained: with all its words."""
        return self.words + self.shown.removeprefix(self.words.split(", ")[0])


def run(help: str = "the program: its id, its pid or its run directory") -> Argument:
    """Return the argument that names a program. Only in a shell: a prompt has its program."""
    return Argument("run", Kind.RUN, help, offer=Offer.SHELL)


def ranks(help: str = "only these ranks", *, required: bool = False) -> Argument:
    """Return the argument that chooses ranks; its value is ``"ranks(...)"``, or ``""`` for all."""
    return Argument("ranks", Kind.RANKS, help, required)


#: Options that commands have in a shell beside their own.
_PROGRAM = Option(
    "-p, --program", "the program: its id, its pid or its run directory", metavar="RUN", default="", offer=Offer.SHELL
)
_VIA = Option(
    "--via",
    'look at programs of another machine; COMMAND runs other commands there, such as "ssh node"',
    metavar="COMMAND",
    default="",
    offer=Offer.SHELL,
)
_JSON = Option("--json", "one object instead of text (docs/json.md)", offer=Offer.SHELL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a command: text for a person, and the same as plain data for a program."""

    text: str = ""
    data: Mapping[str, Value] = field(default_factory=dict)
    #: False: the command failed, wholly or in part.
    ok: bool = True


@dataclass(frozen=True, eq=False)
class Command(Generic[C]):
    """One command.

    Attributes:
        name: The word that it is typed with.
        summary: One line.
        run: Runs it at a prompt; None: there is no such command at prompts.
        arguments: In the order in which they are typed.
        options: In the order in which they are shown.
        aliases: Other words for it.
        details: Further lines of its help, or a function that returns them.
        main: ``"module:function"``, which runs it in a shell: it takes the arguments and returns the exit code.
            "": the shell runs it as a prompt does.
        check: Completes the arguments, and raises UsageError for those that cannot be combined.
        reads_files: It reads files of programs: with ``--via`` it runs on their machine.
        stays: Run in a shell at a terminal, it leaves the prompt open.
        record: The keys of its record for programs, and what they mean (Markdown).
        schema: Of what it writes with ``--json`` in a shell, errors included.
        offer: Where it can be used.
        processes: What a line of a shell means that is about processes which are no ranks (`meant`); None: no line is.
    """

    name: str
    summary: str
    run: Callable[[C, Arguments], Outcome] | None = None
    group: Group = Group.BASIC
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    aliases: tuple[str, ...] = ()
    details: str | Callable[[], str] = ""
    main: str = ""
    check: Callable[[Values], None] | None = None
    reads_files: bool = False
    stays: bool = False
    record: Mapping[str, str] = field(default_factory=dict)
    schema: Schema = DEBUG
    offer: Offer = Offer.ALL
    processes: AnyCommand | None = None

    def meant(self, words: Sequence[str]) -> AnyCommand:
        """Return what a line means: this command, or `processes`.

        It is about processes if it has an option that only `processes` has, or if its first argument is a number:
        nothing that a command of programs takes there is one.

        Args:
            words: Those behind the command.
        """
        other = self.processes
        if other is None:
            return self
        words = [word.partition("=")[0] for word in words]
        mine = {word for each in self.options_for(Offer.ALL) for word in each.words.split(", ")}
        its = {word for each in other.options for word in each.words.split(", ")}
        is_pid = bool(other.arguments and words) and words[0].isdecimal()
        return other if is_pid or (its - mine) & {*words} else self

    def forms(self, offer: Offer) -> list[AnyCommand]:
        """Return what a line with its name can mean somewhere: this command, and `processes` in a shell."""
        return [self] if self.processes is None or not offer & Offer.SHELL else [self, self.processes]

    def further_options(self, offer: Offer) -> tuple[Option, ...]:
        """Return the options that the command has in a shell beside its own; none elsewhere."""
        if not offer & Offer.SHELL or not self.offer & Offer.SHELL:
            return ()
        if self.main:
            return (_PROGRAM, _VIA) if any(each.kind is Kind.RUN for each in self.arguments) else ()
        return (_PROGRAM, _VIA, _JSON)

    def options_for(self, offer: Offer) -> list[Option]:
        """Return the options that can be used somewhere."""
        return [*(each for each in self.options if each.offer & offer), *self.further_options(offer)]

    def usage(self, offer: Offer) -> str:
        """Return how it is written: ``"where [-v] [ACTOR] [ranks(...)]"``."""
        options = [each for each in self.options if each.offer & offer]
        shown = [f"[{each.shown}]" for each in options] if len(options) <= _FEW else ["[OPTION ...]"]
        arguments = [each for each in self.arguments if each.offer & offer]
        shown += [each.shown if each.required else f"[{each.shown}]" for each in arguments]
        return " ".join([self.name, *shown])


#: A command, whatever it may use when it runs.
AnyCommand = Command[Any]
