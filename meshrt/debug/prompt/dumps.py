"""Terminal side: a prompt on a post-mortem file. Like pdb, but the program has ended: values are texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from meshrt.debug.dumpfile import read_dump
from meshrt.debug.prompt.terminal import Terminal, make_terminal
from meshrt.debug.prompt.text import prompt_of
from meshrt.errors import UsageError
from meshrt.escapes import escaped
from meshrt.hooks.facts import Body
from meshrt.selection import near_miss
from meshrt.show.status import ExitCode
from meshrt.show.text import since

__all__ = ["DumpPrompt", "open_dump"]

_HELP = """\
w (where, bt)      the stack, the innermost frame last
u, d [COUNT]       to the caller's frame, or back
l (list)           source around the line; ll: the whole function
p NAME             a variable of this frame; p alone (locals): all of them
e (exception)      the exception with its traceback and causes
q (quit)           leave"""
_AROUND = 5


class DumpPrompt:
    """The prompt of one file: its stack frames, their source and variables, and the exception.

    Args:
        document: As `read_dump` returned it.
    """

    def __init__(self, document: Body) -> None:
        self._document = document
        self._frames: Sequence[Body] = document["frames"]
        self._at = max(0, len(self._frames) - 1)
        self._commands: dict[str, Callable[[str], str]] = {}
        for words, command in (
            (("w", "where", "bt"), self._where),
            (("u", "up"), lambda count: self._move(-1, count)),
            (("d", "down"), lambda count: self._move(1, count)),
            (("l", "list"), lambda _: self._source(whole=False)),
            (("ll", "longlist"), lambda _: self._source(whole=True)),
            (("p", "pp", "locals", "a", "args"), self._print),
            (("e", "exception"), lambda _: str(document["exception"]["traceback"]).rstrip()),
            (("h", "help", "?"), lambda _: _HELP),
        ):
            self._commands.update(dict.fromkeys(words, command))

    @property
    def prompt(self) -> str:
        """The prompt of the next line: actor, rank and coordinates."""
        document = self._document
        return prompt_of(str(document["actor"]), int(document["rank"]), document.get("coords") or {})

    def greeting(self) -> str:
        """Return what failed, where and when, and the current stack frame."""
        document = self._document
        error = document["exception"]
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(document["time"])))
        return escaped(
            f"{document['actor']}.{document['endpoint']} raised on rank {document['rank']}"
            f" (host {document['host']}, pid {document['pid']}) at {when}, {since(float(document['time']))} ago\n"
            f"{error['type']}: {error['message']}\n{self._place()}"
        )

    def execute(self, line: str) -> str:
        """Return the output of a line. Raises UsageError: no such command or variable, or an invalid argument."""
        word, _, argument = line.strip().partition(" ")
        command = self._commands.get(word)
        if command is not None:
            return escaped(command(argument.strip()))
        if line.strip() in self._locals():
            return escaped(self._print(line.strip()))
        raise UsageError(
            f"no command {word!r}{near_miss(word, self._commands) or ';'} the program is gone, so nothing can be "
            "evaluated; `help` shows what there is"
        )

    def complete(self, text: str) -> list[str]:
        """Return completions of the last word of ``text``."""
        return [*self._locals()] if " " in text else [*self._commands]

    def _locals(self) -> dict[str, str]:
        return dict(self._frames[self._at]["locals"]) if self._frames else {}

    def _place(self, at: int | None = None) -> str:
        if not self._frames:
            return "no stack frame of the user's is in the file"
        index = self._at if at is None else at
        frame = self._frames[index]
        text = _line(frame, int(frame["line"]))
        mark = ">" if index == self._at else " "
        return f"{mark} {frame['file']}({frame['line']}){frame['function']}()" + (f"\n-> {text}" if text else "")

    def _where(self, _argument: str) -> str:
        return "\n".join(self._place(index) for index in range(len(self._frames))) or self._place()

    def _move(self, step: int, argument: str) -> str:
        if argument and not argument.isdigit():
            raise UsageError(f"{argument!r} is no number of frames")
        wanted = self._at + step * int(argument or 1)
        if not 0 <= wanted < len(self._frames):
            return "*** Oldest frame" if step < 0 else "*** Newest frame"
        self._at = wanted
        return self._place()

    def _source(self, *, whole: bool) -> str:
        if not self._frames:
            return self._place()
        frame = self._frames[self._at]
        first, line = int(frame["first_line"]), int(frame["line"])
        shown = [
            f"{number:4}{'->' if number == line else '  '} {text}"
            for number, text in enumerate(frame["source"], first)
            if whole or abs(number - line) <= _AROUND
        ]
        return "\n".join(shown) or f"no source of {frame['file']} is in the file"

    def _print(self, name: str) -> str:
        known = self._locals()
        if not name:
            return "\n".join(f"{key} = {text}" for key, text in known.items()) or "no variables"
        if name not in known:
            there = near_miss(name, known) or ("; there are: " + ", ".join(known) if known else "")
            raise UsageError(f"no variable {name!r} in this frame{there} (expressions cannot be evaluated any more)")
        return known[name]


def _line(frame: Body, line: int) -> str:
    index = line - int(frame["first_line"])
    source: Sequence[Any] = frame["source"]
    return str(source[index]).strip() if 0 <= index < len(source) else ""


def open_dump(path: str, lines: Iterable[str] | None = None) -> int:
    """Open the prompt on a file, or run ``lines``. Returns an exit code.

    Args:
        lines: Commands to run instead of opening a prompt, up to the first that fails.
    Raises:
        UsageError: The file cannot be read, or is not a post-mortem file.
    """
    prompt = DumpPrompt(read_dump(path))
    greeting = prompt.greeting()
    terminal = make_terminal(prompt.complete)
    try:
        if lines is None:
            terminal.write(greeting + "\n")
        for line in lines if lines is not None else _read(terminal, prompt):
            if line.strip() in ("q", "quit", "exit"):
                break
            if not _obey(terminal, prompt, line) and not (terminal.interactive and lines is None):
                return ExitCode.FAILED
        return ExitCode.OK
    finally:
        terminal.close()


def _read(terminal: Terminal, prompt: DumpPrompt) -> Iterable[str]:
    while True:
        try:
            yield terminal.read(prompt.prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            terminal.write("`q` (or Ctrl-D) leaves\n")


def _obey(terminal: Terminal, prompt: DumpPrompt, line: str) -> bool:
    if not line.strip():
        return True
    try:
        terminal.write(prompt.execute(line) + "\n")
    except UsageError as error:
        terminal.write(f"{escaped(str(error))}\n")
        return False
    return True
