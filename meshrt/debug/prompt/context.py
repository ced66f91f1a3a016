"""Terminal side: what a command may use when it runs at the prompt, and how it tells of the answers of many ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import to_builtins

from meshrt.commandline.command import Arguments, Option, Outcome
from meshrt.commandline.numbers import number
from meshrt.debug.prompt.answers import Answers
from meshrt.hooks.facts import Body
from meshrt.hooks.operations import Data
from meshrt.inspect.shortening import LINES

if TYPE_CHECKING:  # start-up: a command of the shell needs no prompt
    from meshrt.debug.operations import JobReport, Snapshot
    from meshrt.debug.prompt.client import Client
    from meshrt.debug.prompt.terminal import Terminal

__all__ = ["ANSWERS", "DIFF", "VERBOSE", "Prompt", "plain", "told"]

#: Options of commands that show the answers of many ranks.
VERBOSE = Option("-v, --verbose", "show long answers, and many numbers, in full")
DIFF = Option("--diff", "show what differs from the answer of this rank", "diff", "RANK", convert=number("a rank"))
#: What the record of such a command has.
ANSWERS = {
    "answers": '`[{"actor", "kind", "ranks", "text", "facts", "failed"}]`, equal answers once (`failed`: the text says '
    "what was wrong with the line)",
    "waiting": "`{actor: ranks}` of ranks that have not answered in time",
}


class Prompt(Protocol):
    """What a command may use. On the prompt's thread."""

    #: Ids of the breakpoints that were set here.
    breaks: set[int]

    @property
    def client(self) -> Client:
        """The connection to the broker."""
        ...

    @property
    def terminal(self) -> Terminal:
        """Where questions to the person are asked."""
        ...

    def collect(self, first: JobReport) -> Answers:
        """Gather the answers of a job, for a limited time; ``first`` is the broker's first report."""
        ...

    def attach(self, snapshot: Snapshot) -> None:
        """Attach the prompt to a rank; ``snapshot`` is the broker's answer to attach."""
        ...

    def leave(self) -> None:
        """End the prompt after this command."""
        ...


def plain(data: Data) -> Body:
    """Return data of the program as plain data, for a record."""
    found: Body = to_builtins(data)
    return found


def told(answers: Answers, arguments: Arguments, *, late: str = "", again: bool = True) -> Outcome:
    """Return the outcome of a job: the answers of ranks, and the ranks that have not answered.

    Args:
        arguments: Of the command; ``diff`` and ``verbose`` say how answers are shown.
        late: What happens to the ranks that have not answered; "": they are not named.
        again: The command can be repeated to see long answers in full, so they are shortened.
    Raises:
        UsageError: The rank to compare with was not asked, and the command can be repeated.
    """
    against = arguments.get("diff")
    if again:
        answers.check_against(against)
    every = bool(arguments.get("verbose", True))  # commands without -v show every answer
    text = answers.text(every=every, against=against, most=LINES if again and not every else None)
    if answers.unanswered and (late or answers.lost):
        if answers.lost:
            late = "the program has closed the connection"
        elif answers.cancelled:  # the others step
            late = "cancelled" if answers.cancelled == answers.unanswered else f"{answers.cancelled} cancelled; {late}"
        text += ("\n" if text else "") + f"{answers.pending()}: {late}"
    failed = answers.ranks("gone", "silent", "refused", "held", "busy", "blocked") or answers.errors()
    # A rank that had to be stopped and is stopped already counts as reached.
    reached = bool(answers.sent) or bool(answers.ranks("stopped"))
    return Outcome(text, answers.data(), ok=reached and answers.done and not failed)
