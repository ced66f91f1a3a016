"""Terminal side: input of lines and output of text. prompt_toolkit at a terminal, plain lines everywhere else.

Another thread may `wake` a terminal: the present `read`, or the next one, raises `Woken`, and the prompt looks at what
has changed. It may also pass a `notice`, which is printed above the line that is being typed.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import sys
import termios
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Protocol

from meshrt.escapes import escaped
from meshrt.show.colours import painted, prompt_painted, wants_colours
from meshrt.show.paging import write_paged
from meshrt.show.streams import write_out
from meshrt.transport.paths import closed_after
from meshrt.transport.places import state_directory
from meshrt.transport.writing import open_private

__all__ = ["LineTerminal", "PromptTerminal", "Terminal", "Woken", "agreed", "make_terminal"]

Completer = Callable[[str], Iterable[str]]


class Woken(Exception):
    """Raised by `Terminal.read`: `Terminal.wake` was called, or Ctrl-C has dropped a text."""


class Terminal(Protocol):
    """What the prompt needs of a terminal. On the prompt's thread, except where a method says otherwise."""

    #: A person is at the terminal, and can be asked.
    interactive: bool

    def read(self, prompt: str) -> str:
        """Return the next line, without its line end.

        Raises:
            EOFError: The input has ended, or Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
            Woken: `wake` was called, or Ctrl-C has dropped a text that was typed.
        """
        ...

    def write(self, text: str) -> None:
        """Print ``text``."""
        ...

    def page(self, text: str) -> None:
        """Print ``text``, through the user's pager if it does not fit; notices wait until that has ended."""
        ...

    def notice(self, text: str) -> None:
        """Print a line above the one that is being typed; keep it until the next `read` if none is. Any thread."""
        ...

    def forget_typed(self) -> bool:
        """Drop what a person has typed that was not read yet: it was meant for another prompt.

        Returns whether anything was dropped.
        """
        ...

    def wake(self) -> None:
        """Make the present `read`, or the next one, raise `Woken`. Any thread."""
        ...

    def close(self) -> None:
        """Close what the terminal has opened."""
        ...


class _Notices:
    """Notices, kept until a line is being read. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._reading = False

    def put(self, text: str, show: Callable[[str], None]) -> None:
        """Show ``text`` now if a line is being read, else keep it."""
        with self._lock:
            if not self._reading:
                self._waiting.append(text)
                return
        show(text)

    @contextlib.contextmanager
    def reading(self, show: Callable[[str], None]) -> Iterator[None]:
        """Context in which a line is read: show the notices that were kept, and later ones at once."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for text in waiting:
            show(text)
        with self._lock:
            self._reading = True
        try:
            yield
        finally:
            with self._lock:
                self._reading = False


class LineTerminal:
    """Plain lines from a file descriptor, text to a stream: pipes, files, scripts.

    Args:
        stdin: File descriptor to read.
        stdout: Stream to write to.
        person: It is a terminal that cannot move its cursor. Only then a prompt is shown.
        write: Writes text to the stream.
    """

    def __init__(
        self, stdin: int, stdout: IO[str], *, person: bool = False, write: Callable[[IO[str], str], None] = write_out
    ) -> None:
        self.interactive = person
        self._write = write
        self._stdin = stdin
        self._stdout = stdout
        self._prompt = ""
        self._buffer = b""
        self._ended = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._notices = _Notices()

    def read(self, prompt: str) -> str:
        """Return the next line; at the end of the input, also a last line without a line end."""
        self._heed_bell()
        with self._notices.reading(self._show_before):
            if self.interactive:
                self._prompt = prompt
                self.write(prompt)
            while b"\n" not in self._buffer:
                if self._ended:
                    line, self._buffer = self._buffer, b""
                    if line:
                        return line.decode("utf-8", "replace")
                    raise EOFError
                ready, _, _ = select.select([self._bell, self._stdin], [], [])
                if self._bell in ready:
                    if self.interactive:
                        self.write("\n")
                    self._heed_bell()
                data = os.read(self._stdin, 65536)
                if not data and self.interactive:
                    self.write("\n")
                    raise EOFError  # Ctrl-D: a terminal goes on after it
                self._ended = not data
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    def forget_typed(self) -> bool:
        """Drop what a person has typed; lines of a script are kept."""
        if not self.interactive:
            return False
        buffered, self._buffer = self._buffer, b""
        return _flush(self._stdin) or bool(buffered)

    def _heed_bell(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
            raise Woken

    def write(self, text: str) -> None:
        """Write ``text`` to the stream."""
        self._write(self._stdout, text)

    page = write  # a terminal that cannot move its cursor has no pager

    def _show_before(self, text: str) -> None:
        self.write(escaped(text) + "\n")

    def _show_now(self, text: str) -> None:
        self.write(f"\n{escaped(text)}\n{self._prompt}" if self.interactive else f"{escaped(text)}\n")

    def notice(self, text: str) -> None:
        """Show ``text``, escaped, above the prompt; keep it while no line is read. Any thread."""
        self._notices.put(text, self._show_now)

    def wake(self) -> None:
        """Ring the bell that `read` waits for. Any thread; no effect once it is closed."""
        with contextlib.suppress(OSError):  # closed
            os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        """Close the bell; the streams stay open."""
        bell, self._bell = self._bell, -1
        if bell >= 0:
            os.close(bell)


class PromptTerminal:
    """A person at a terminal: editing, history, completion, notices above the line.

    Args:
        complete: Returns completions of the last word of a text.
    """

    interactive = True

    def __init__(self, complete: Completer) -> None:
        from prompt_toolkit import PromptSession  # start-up: only at a terminal

        self._session: Any = PromptSession(
            history=_history(), completer=_completer(complete), complete_while_typing=False
        )
        self._lock = threading.Lock()
        self._notices = _Notices()
        self._woken = False
        self._active: Any = None
        self._coloured = wants_colours(sys.stdout)

    def read(self, prompt: str) -> str:
        """Return the next line, as `Terminal.read` says; notices are shown above it."""
        from prompt_toolkit.formatted_text import ANSI  # start-up: only at a terminal
        from prompt_toolkit.patch_stdout import patch_stdout  # start-up: only at a terminal

        with self._lock:
            if self._woken:
                self._woken = False
                raise Woken
        shown = prompt_painted(prompt) if self._coloured else prompt
        try:
            with patch_stdout(raw=True), self._notices.reading(print):
                return str(self._session.prompt(ANSI(shown), pre_run=self._began))
        except KeyboardInterrupt:
            if self._session.default_buffer.text:
                raise Woken from None  # as in a shell, Ctrl-C only drops what was typed
            raise
        finally:
            with self._lock:
                self._active = None
                self._woken = False

    def forget_typed(self) -> bool:
        """Drop what a person has typed, also what prompt_toolkit has read ahead."""
        from prompt_toolkit.input import typeahead  # start-up: only at a terminal

        ahead = typeahead.get_typeahead(self._session.input)
        return _flush(sys.stdin.fileno()) or bool(ahead)

    def _began(self) -> None:
        with self._lock:
            self._active = self._session.app
            if self._woken:
                self._active.exit(exception=Woken())

    def write(self, text: str) -> None:
        """Write ``text`` to standard output, with its colours."""
        sys.stdout.write(painted(text) if self._coloured else text)
        sys.stdout.flush()

    def page(self, text: str) -> None:
        """Write ``text`` to standard output, with its colours, through the user's pager if it does not fit."""
        if threading.current_thread() is threading.main_thread():
            write_paged(sys.stdout, text)
        else:  # the pager needs Ctrl-C for itself, which is the main thread's
            self.write(text)

    def notice(self, text: str) -> None:
        """Show ``text``, escaped, above the line that is typed; keep it while no line is read. Any thread."""
        self._notices.put(escaped(text), print)

    def wake(self) -> None:
        """End the prompt that is open, or the next one, with `Woken`. Any thread."""
        with self._lock:
            if self._woken:
                return
            self._woken = True
            app = self._active
            if app is not None and app.loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: the line has just been read
                    app.loop.call_soon_threadsafe(self._exit, app)

    def _exit(self, app: Any) -> None:
        with self._lock:
            if app is self._active and app.is_running and not app.future.done():
                app.exit(exception=Woken())

    def close(self) -> None:
        """Do nothing: no file is open."""


def _flush(descriptor: int) -> bool:
    waiting = array.array("i", [0])
    with contextlib.suppress(OSError, termios.error):  # the terminal has closed
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        termios.tcflush(descriptor, termios.TCIFLUSH)
    return waiting[0] > 0


def make_terminal(complete: Completer) -> Terminal:
    """Return a terminal for this process's standard streams.

    Args:
        complete: Returns completions of the last word of a text.
    """
    if sys.stdin is None or sys.stdout is None:
        return LineTerminal(os.open(os.devnull, os.O_RDONLY), sys.__stdout__ or open(os.devnull, "w"))
    person = sys.stdin.isatty() and sys.stdout.isatty()
    if person and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        return PromptTerminal(complete)
    return LineTerminal(sys.stdin.fileno(), sys.stdout, person=person)


def _history() -> Any:
    from prompt_toolkit.history import FileHistory, InMemoryHistory  # start-up: only at a terminal

    state = state_directory()
    if state is None:
        return InMemoryHistory()
    path = state / "debug_history"
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with closed_after(open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)) as descriptor:
            os.fchmod(descriptor, 0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))


def _completer(complete: Completer) -> Any:
    from prompt_toolkit.completion import Completer as Base  # start-up: only at a terminal
    from prompt_toolkit.completion import Completion  # start-up: only at a terminal

    class Words(Base):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:
            text = document.text_before_cursor
            word = text[text.rfind(" ") + 1 :]
            for candidate in complete(text):
                if candidate.startswith(word):
                    yield Completion(candidate, start_position=-len(word))

    return Words()


def agreed(terminal: Terminal, question: str) -> bool:
    """Ask the person. Returns whether the answer was yes; True where there is no person to ask."""
    if not terminal.interactive:
        return True
    try:
        answer = terminal.read(f"{question} [y/N] ")
    except (EOFError, Woken):
        answer = ""
    return answer.strip().lower() in ("y", "yes")
