"""Terminal side: a prompt on a post-mortem or a failure file. Like pdb, but the code has ended: values are texts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping

from meshrt.commandline.command import Argument, Arguments, Command, Kind, Offer, Outcome
from meshrt.commandline.line import head
from meshrt.commandline.numbers import number
from meshrt.commandline.table import Table
from meshrt.debug.dumpfile import Dump, DumpedFrame, read_dump
from meshrt.debug.failed import failed, is_failure_file
from meshrt.debug.prompt.terminal import Terminal, make_terminal
from meshrt.debug.prompt.text import prompt_of
from meshrt.errors import UsageError, one_line
from meshrt.escapes import escaped
from meshrt.selection import near_miss
from meshrt.show.status import ExitCode
from meshrt.show.text import since

__all__ = ["DumpPrompt", "open_dump"]

_AROUND = 5
#: Most characters of a failure in a list of them.
_HEADLINE = 200


class DumpPrompt:
    """The prompt of one file: its stack frames, their source and variables, and the exception.

    Args:
        dumps: What has failed, the root cause first; at least one.
        report: The report of the failure; "": there is none.
    """

    def __init__(self, *dumps: Dump, report: str = "") -> None:
        self._dumps = dumps
        self._report = report
        self._show(dumps[0])
        #: `quit` was typed.
        self.left = False

    @property
    def prompt(self) -> str:
        """The prompt of the next line: actor, rank and coordinates."""
        return prompt_of(self._dump.actor, self._dump.rank, self._dump.coords)

    def _show(self, dump: Dump) -> None:
        self._dump = dump
        self._frames = dump.frames
        self._at = max(0, len(self._frames) - 1)

    def greeting(self) -> str:
        """Return what failed, where and when, and the current stack frame."""
        more = f"\n`r` shows the {len(self._dumps)} failures of this file" if len(self._dumps) > 1 else ""
        return escaped(self._failure()) + more

    def _failure(self) -> str:
        dump, error = self._dump, self._dump.exception
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(dump.time))
        place = f"on rank {dump.rank} (host {dump.host}, pid {dump.pid}) at {when}, {since(dump.time)} ago"
        headline = f"{error.type}: {error.message}" if error.type else error.message
        return f"{dump.what or f'{dump.actor}.{dump.endpoint} raised'} {place}\n{headline}\n{self._place()}"

    def execute(self, line: str) -> str:
        """Return the output of a line. Raises UsageError: no such command or variable, or an invalid argument."""
        if _COMMANDS.get(head(line)[0]) is None and line.strip() in self._locals():
            return escaped(self.print_variable(line.strip()))
        try:
            invocation = _COMMANDS.parse(line, Offer.PROMPT)
        except UsageError as error:
            raise UsageError(f"{error} (this code has ended: nothing can be evaluated)") from None
        return escaped(invocation.run(self).text)

    def complete(self, text: str) -> list[str]:
        """Return completions of the last word of ``text``."""
        if " " in text:
            return [*self._locals()]
        return [word for each in _COMMANDS.all() for word in (each.name, *each.aliases)]

    def _locals(self) -> Mapping[str, str]:
        return self._frames[self._at].locals if self._frames else {}

    def _place(self, at: int | None = None) -> str:
        if not self._frames:
            return "the file has no stack frame of the user's code"
        index = self._at if at is None else at
        frame = self._frames[index]
        text = _line(frame)
        mark = ">" if index == self._at else " "
        return f"{mark} {frame.file}({frame.line}){frame.function}()" + (f"\n-> {text}" if text else "")

    def stack(self) -> str:
        """Return all stack frames."""
        return "\n".join(self._place(index) for index in range(len(self._frames))) or self._place()

    def move(self, step: int) -> str:
        """Go to another stack frame, ``step`` frames towards the newest one. Returns where that is."""
        wanted = self._at + step
        if not 0 <= wanted < len(self._frames):
            return "*** Oldest frame" if step < 0 else "*** Newest frame"
        self._at = wanted
        return self._place()

    def failures(self, number: int) -> str:
        """Go to another failure of the file, by its number; returns what that is. 0: returns all of them.

        Raises:
            UsageError: There is no such number.
        """
        if not number:
            marked = [">" if dump is self._dump else " " for dump in self._dumps]
            lines = [f"{dump.actor} rank {dump.rank}: {_headline(dump)}" for dump in self._dumps]
            return "\n".join(
                f"{mark} {at:2}  {line}" for at, (mark, line) in enumerate(zip(marked, lines, strict=True), 1)
            )
        if number > len(self._dumps):
            raise UsageError(f"there is no failure {number}: this file has {len(self._dumps)}")
        self._show(self._dumps[number - 1])
        return self._failure()

    def report(self) -> str:
        """Return the report of the failure, which is of all ranks."""
        return self._report.rstrip() or "a post-mortem file has no report; `e` shows the exception"

    def traceback(self) -> str:
        """Return the exception with its traceback and causes."""
        return self._dump.exception.traceback.rstrip()

    def source(self, *, whole: bool) -> str:
        """Return the source around the line, or of the whole function."""
        if not self._frames:
            return self._place()
        frame = self._frames[self._at]
        shown = [
            f"{number:4}{'->' if number == frame.line else '  '} {text}"
            for number, text in enumerate(frame.source, frame.first_line)
            if whole or abs(number - frame.line) <= _AROUND
        ]
        return "\n".join(shown) or f"the file does not contain the source of {frame.file}"

    def print_variable(self, name: str) -> str:
        """Return a variable of this frame, or all of them (""). Raises UsageError: there is none of that name."""
        known = self._locals()
        if not name:
            return "\n".join(f"{key} = {text}" for key, text in known.items()) or "no variables"
        if name not in known:
            there = near_miss(name, known) or ("; there are: " + ", ".join(known) if known else "")
            raise UsageError(f"no variable {name!r} in this frame{there} (expressions cannot be evaluated any more)")
        return known[name]


def _said(show: Callable[[DumpPrompt, Arguments], str]) -> Callable[[DumpPrompt, Arguments], Outcome]:
    return lambda prompt, arguments: Outcome(show(prompt, arguments))


def _quit(prompt: DumpPrompt, _: Arguments) -> Outcome:
    prompt.left = True
    return Outcome()


_COUNT = (Argument("count", metavar="COUNT", default=1, convert=number("frames")),)
_COMMANDS: Table[DumpPrompt] = Table(
    (
        Command("w", "the stack, the innermost frame last", _said(lambda on, _: on.stack()), aliases=("where", "bt")),
        Command("u", "go to the caller's frame", _said(lambda on, given: on.move(-given["count"])), arguments=_COUNT,
                aliases=("up",)),
        Command("d", "go to the called frame", _said(lambda on, given: on.move(given["count"])), arguments=_COUNT,
                aliases=("down",)),
        Command("l", "source around the line", _said(lambda on, _: on.source(whole=False)), aliases=("list",)),
        Command("ll", "the whole function", _said(lambda on, _: on.source(whole=True)), aliases=("longlist",)),
        Command(
            "p",
            "a variable of this frame; without NAME: all of them",
            _said(lambda on, given: on.print_variable(given["name"])),
            arguments=(Argument("name", Kind.LINE),),
            aliases=("pp", "locals", "a", "args"),
        ),
        Command("e", "the exception with its traceback and causes", _said(lambda on, _: on.traceback()),
                aliases=("exception",)),
        Command(
            "r", "the failures of this file, the root cause first; with NUMBER: go to that failure",
            _said(lambda on, given: on.failures(given["number"])),
            arguments=(Argument("number", metavar="NUMBER", default=0, convert=number("failures")),),
            aliases=("rank", "failures"),
        ),
        Command("report", "the report of the failure, about all ranks", _said(lambda on, _: on.report())),
        Command(
            "h", "the commands of this prompt", _said(lambda _on, given: _COMMANDS.help(given["topic"], Offer.PROMPT)),
            arguments=(Argument("topic", Kind.COMMAND, metavar="COMMAND"),), aliases=("help", "?"),
        ),
        Command("q", "leave", _quit, aliases=("quit", "exit")),
    )
)  # fmt: skip


def _headline(dump: Dump) -> str:
    error = dump.exception
    return one_line(f"{error.type}: {error.message}" if error.type else error.message, _HEADLINE)


def _line(frame: DumpedFrame) -> str:
    index = frame.line - frame.first_line
    return frame.source[index].strip() if 0 <= index < len(frame.source) else ""


def open_dump(path: str, lines: Iterable[str] | None = None) -> int:
    """Open the prompt on a file, or run ``lines``. Returns an exit code.

    Args:
        lines: Commands to run instead of opening a prompt, up to the first that fails.
    Raises:
        UsageError: The file cannot be read, or is no post-mortem file.
        MeshError: It is a damaged failure file.
    """
    if is_failure_file(path):
        found = failed(path)
        prompt = DumpPrompt(*found.dumps, report=found.report)
    else:
        prompt = DumpPrompt(read_dump(path))
    greeting = prompt.greeting()
    with contextlib.closing(make_terminal(prompt.complete)) as terminal:
        if lines is None:
            terminal.write(greeting + "\n")
        for line in lines if lines is not None else _read(terminal, prompt):
            done = _run(terminal, prompt, line)
            if prompt.left:
                break
            if not done and not (terminal.interactive and lines is None):
                return ExitCode.FAILED
        return ExitCode.OK


def _read(terminal: Terminal, prompt: DumpPrompt) -> Iterable[str]:
    while True:
        try:
            yield terminal.read(prompt.prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            terminal.write("`q` (or Ctrl-D) leaves\n")


def _run(terminal: Terminal, prompt: DumpPrompt, line: str) -> bool:
    if not line.strip():
        return True
    try:
        shown = prompt.execute(line)
        terminal.write(shown + "\n" if shown else "")
    except UsageError as error:
        terminal.write(f"{escaped(str(error))}\n")
        return False
    return True
