"""The debug console of the mesh: the debugger's own commands over all ranks, and over those that the IDE has stopped.

Every command of the debugger's prompt works here, through the same code. Ranks that are stopped in the IDE have no
session of the debugger. So ``n``, ``s``, ``r``, ``c``, ``pause``, and ``p`` and ``cast`` on such ranks, go to their
engines.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from meshrt.commandline.command import Offer
from meshrt.commandline.line import behind, head
from meshrt.commandline.table import COMMANDS
from meshrt.debug.dap.router.channels import Answers, RankLink, ask_each
from meshrt.debug.dap.router.console_words import OWN, REQUESTS, check, console_help
from meshrt.debug.dap.router.program import ProgramLink
from meshrt.debug.dap.router.ranks import Key, Names
from meshrt.debug.dap.shown import WHOLE, cut
from meshrt.debug.prompt.client import Client
from meshrt.debug.prompt.lines import parse_line
from meshrt.debug.prompt.repl import Repl
from meshrt.errors import DebugAdapterError, MeshError, UsageError
from meshrt.program.groups import by_key
from meshrt.selection import parse
from meshrt.transport import tools
from meshrt.transport.threads import RuntimeThread

__all__ = ["Console", "hint", "mesh_line"]

#: The word before a line for the debugger where Python is expected as well: ``mesh where``.
_MESH = "mesh"

_PAST = {"next": "stepping", "stepIn": "stepping in", "stepOut": "stepping out", "continue": "continuing"}
_VALUES = ("p", "print", "pp")
#: Seconds for the value of an expression.
_SECONDS = 10.0
#: What the user of an IDE has to know of a command of the prompt.
_BREAK = "attached ranks stop only at breakpoints of the editor; this breakpoint is deleted when the IDE detaches"
_NOTES = {
    "break": _BREAK,
    "tbreak": _BREAK,
    "postmortem": "the mode is for prompts and stays after the IDE detaches; the IDE uses its own exception settings",
}

T = TypeVar("T")


def mesh_line(line: str) -> str:
    """Return the command in a line of a rank's console that begins with ``mesh``; "" for a line of Python."""
    return behind(line, _MESH)


def hint(line: str, rank: str) -> str:
    """Return a hint for a line that a rank's Python refuses and that is a command of this console; "" if it is not.

    Args:
        rank: The name of the rank that evaluated the line.
    """
    word, _ = head(line)
    command = COMMANDS.get(word) if word else None
    if OWN.get(word) is None and (command is None or not command.offer & (Offer.CONSOLE | Offer.PROMPT)):
        return ""
    return f"meshrt: this console runs Python on {rank}; the command for the mesh is: mesh {word}"


def _note(line: str) -> str:
    """Return a note to append to the output of ``line`` after it has run; "" for none."""
    word, _ = head(line)
    command = COMMANDS.get(word) if word else None
    return _NOTES.get(command.name, "") if command is not None else ""


class Console:
    """One console. On the router's loop.

    Args:
        link: Leads to the program that runs the debugger's commands.
        links: Returns the engines that the IDE is attached to now.
        mesh: The mesh, or the actor, whose ranks a line means that names none; "": all meshes.
        names: The display names of ranks.
        session: The number of the session. Breakpoints that are set here are deleted when it ends.
    """

    def __init__(
        self, link: ProgramLink, links: Callable[[], Mapping[Key, RankLink]], mesh: str, names: Names, session: int
    ) -> None:
        self._link = link
        self._session = session
        self._links = links
        self._mesh = mesh
        self._names = names
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="meshrt-console")
        self._prompt: _Prompt | None = None
        self._closed = threading.Event()

    async def run(self, line: str, looking: RankLink | None = None) -> str:
        """Run a line and return its output.

        Args:
            line: One command, with or without ``mesh`` in front.
            looking: The rank in whose session the line was typed. After a step the IDE shows that rank and no other.
        Raises:
            MeshError: The line is not valid, or the command failed.
        """
        line = mesh_line(line) or line.strip()
        word, rest = head(line)
        command = COMMANDS.get(word) if word else None
        if self._prompt is None or not self._prompt.at_rank:  # otherwise that rank's pdb answers
            check(word)
            if command is not None and command.name == "help":
                return console_help(rest)
        own = OWN.get(word)
        if own is not None and not (own.name == "c" and self._any_other(rest)):
            arguments = OWN.parse(line, Offer.CONSOLE).arguments
            if arguments is None:
                return console_help(word)
            return await self._step(REQUESTS[own.name], await self._meant(arguments["ranks"]), looking)
        if command is not None and command.name in ("cast", "p", "pp"):
            arguments = parse_line(line, Offer.CONSOLE).arguments
            if arguments is None:
                return console_help(word)
            meant = await self._which(str(arguments["actor"]), str(arguments["ranks"]))
            stopped = {key: link for key, link in self._links().items() if key in meant and link.stops}
            if stopped:
                others = meant - set(stopped)
                text = await self._tell(str(arguments.get("line") or arguments.get("expression")), stopped, looking)
                if others and word != "cast":
                    # Ask the running ranks as the prompt does: the user compares the values of all ranks.
                    numbers = ",".join(str(rank) for _, rank in sorted(others))
                    rest = f"{word} {arguments['actor']} ranks({numbers}) {arguments['expression']}"
                    try:
                        return f"{text}\n{await self._prompted(rest)}"
                    except MeshError as error:  # names of a frame are unknown where no thread is stopped
                        return f"{text}\n{error}"
                return text + (f"\n{self._names.of(others)}: not stopped in the IDE" if others else "")
        return await self._prompted(line)

    async def _prompted(self, line: str) -> str:
        text = await asyncio.get_running_loop().run_in_executor(self._thread, self._run_line, line)
        note = _note(line)
        return f"{text}\n{note}" if note else text

    def _any_other(self, rest: str) -> bool:
        """Return whether ``continue`` is meant for ranks at prompts of the debugger."""
        here = any(link.stops or link.pausing for link in self._links().values())
        return not here or bool(rest and not rest.startswith("ranks"))

    def close(self) -> None:
        """Close the console. A line that still runs, possibly for ever, ends with its connection."""
        self._closed.set()
        self._thread.shutdown(wait=False)
        if self._prompt is not None:
            RuntimeThread(target=self._prompt.leave, name="meshrt-console-end").start()

    # -- ranks of the IDE

    async def _which(self, actor: str, ranks: str) -> set[Key]:
        """Return the ranks that a line means. Raises as `ProgramLink.which`."""
        return {rank.key for rank in await self._link.which(actor or self._mesh, ranks)}

    async def _meant(self, ranks: str) -> dict[Key, RankLink]:
        links = self._links()
        if not ranks:
            return dict(links)
        parse(ranks)
        meant = await self._which("", ranks)
        missing = meant - set(links)
        if missing and len(missing) == len(meant):
            raise UsageError(f"the IDE is not attached to {self._names.of(missing)}")
        return {key: link for key, link in links.items() if key in meant}

    async def _tell(self, line: str, stopped: Mapping[Key, RankLink], looking: RankLink | None) -> str:
        word, rest = head(line)
        own = OWN.get(word)
        if own is not None:
            return await self._step(REQUESTS[own.name], stopped, looking)
        expression = rest if word in _VALUES and rest else line.strip().removeprefix("!")
        return await self._values(expression, stopped)

    async def _step(self, command: str, links: Mapping[Key, RankLink], looking: RankLink | None) -> str:
        if command == "pause":
            running = {key: link for key, link in links.items() if not link.stops}
            busy = {key: link for key, link in links.items() if link.stops and link.evaluating}
            if not running and not busy:
                return "no attached rank is running" if links else "no rank is attached"
            asked = {key: link.request("pause", {"threadId": 1}) for key, link in {**running, **busy}.items()}
            paused = await _each(asked)
            said = [f"{self._names.of(running)}: asked to pause"] if running else []
            if busy:
                said.append(f"{self._names.of(busy)}: the running evaluation is interrupted")
            return "\n".join(said) + self._silent(paused)
        stopped = {key: link for key, link in links.items() if link.stops}
        pausing = {key: link for key, link in links.items() if link.pausing and command == "continue"}
        if not stopped and not pausing:
            return "no rank is stopped in the IDE"
        asks = {
            # After `continue`, the IDE shows the next stop, whichever rank the user looks at.
            key: link.resume(
                command,
                {"threadId": next(iter(link.stops), 1)},
                looked=None if command == "continue" else link is looking,
            )
            for key, link in {**stopped, **pausing}.items()
        }
        answers = await _each(asks)
        said = [f"{self._names.of(stopped)}: {_PAST[command]}"] if stopped else []
        if pausing:
            said.append(f"{self._names.of(pausing)}: pause cancelled")
        return "\n".join(said) + self._silent(answers)

    async def _values(self, expression: str, stopped: Mapping[Key, RankLink]) -> str:
        # Sorted by rank, not in the order in which the IDE opened the sessions.
        answers = await _each({key: _evaluate(stopped[key], expression) for key in sorted(stopped)}, _SECONDS)
        classes = by_key((text, key) for key, text in answers.said.items())
        shown = "\n".join(f"[{self._names.numbers(keys)}] {cut(text)}" for text, keys in classes.items())
        return shown + self._silent(answers, "; mesh pause interrupts the evaluation")

    def _silent(self, answers: Answers[Key, Any], hint: str = "") -> str:
        return f"\n{self._names.of(answers.silent)}: no answer yet{hint}" if answers.silent else ""

    # -- the debugger's own, on their thread

    def _run_line(self, line: str) -> str:
        if self._closed.is_set():
            raise MeshError("the session has ended")
        if self._prompt is None or self._prompt.client.closed():
            self._prompt = _Prompt(self._link.program, self._session)
            if self._closed.is_set():  # closed meanwhile: only this thread can close the prompt
                self._prompt.leave()
        return self._prompt.run_line(line)


async def _evaluate(link: RankLink, expression: str) -> str:
    thread = next(iter(link.stops), 0)
    try:
        stack = await link.request("stackTrace", {"threadId": thread, "startFrame": 0, "levels": 1})
        frames = stack.get("stackFrames") or [{}]
        asked = {"expression": expression, "frameId": frames[0].get("id"), "context": "repl", "format": {WHOLE: True}}
        return str((await link.request("evaluate", asked)).get("result", ""))
    except DebugAdapterError as error:
        # Only the last line of a traceback, the exception: the rest is about the line that was typed.
        return str(error).strip().rpartition("\n")[2]


async def _each(asks: Mapping[Key, Coroutine[Any, Any, T]], seconds: float | None = None) -> Answers[Key, T]:
    """Await all requests at once. Raises the first refusal."""
    answers = await ask_each(asks, seconds)
    for refusal in answers.refused.values():
        raise refusal
    return answers


class _Prompt:
    """The debugger's prompt without a terminal. On its console's thread."""

    interactive = False

    def __init__(self, program: tools.Program, session: int) -> None:
        self.client = Client(
            lambda on_event, on_close: tools.connect(program, on_event, on_close), person=False, goes=session
        )
        self._out = io.StringIO()
        self._repl = Repl(self.client, self, notices=False)

    def run_line(self, line: str) -> str:
        """Run a line and return its output. Raises MeshError with the output of a command that failed."""
        self._out.seek(0)
        self._out.truncate()
        ok = self._repl.execute(line)
        text = self._out.getvalue().rstrip("\n")
        if not ok and text:
            raise MeshError(text)
        return text

    @property
    def at_rank(self) -> bool:
        """Whether this console is attached to a rank, whose pdb takes the lines. Any thread."""
        return self._repl.at_rank

    def leave(self) -> None:
        """End the connection. Any thread; it may take a while."""
        self.client.mute()
        self.client.close()

    # -- `meshrt.debug.prompt.terminal.Terminal`

    def read(self, prompt: str) -> str:
        """Raise EOFError: this terminal has no input."""
        raise EOFError

    def write(self, text: str) -> None:
        """Collect the output."""
        self._out.write(text)

    page = write

    def notice(self, text: str) -> None:
        """Ignore notices: the IDE shows stops itself."""

    def forget_typed(self) -> bool:
        """Return False: no input is typed ahead."""
        return False

    def wake(self) -> None:
        """Do nothing: no read is pending."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
