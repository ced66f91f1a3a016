"""Ways to open the debugger: from a shell, from the script, and by itself on the script's terminal."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from meshrt.commandline.command import Arguments
from meshrt.commandline.table import Invocation
from meshrt.debug.operations import Breaks
from meshrt.debug.prompt.client import LOOK_SECONDS, Client
from meshrt.debug.prompt.context import Prompt
from meshrt.debug.prompt.dumps import open_dump
from meshrt.debug.prompt.repl import LEAVING, Repl
from meshrt.debug.prompt.tables import left_behind
from meshrt.debug.prompt.terminal import LineTerminal, Terminal, make_terminal
from meshrt.errors import MeshError, UsageError
from meshrt.hooks.services import Waited
from meshrt.inspect.operations import ListRanks
from meshrt.inspect.programs import choose, named, telling_slow
from meshrt.show.paging import write_paged
from meshrt.show.records import DEBUG, Recorder
from meshrt.show.status import ExitCode
from meshrt.transport import tools
from meshrt.transport.process import has_runtime

__all__ = ["enter", "enter_here", "run_in_shell", "show"]

BANNER = "meshrt debugger; `help` shows the commands, `list` the stopped ranks, `quit` leaves them stopped"
#: Seconds that resumed ranks must run before the prompt assumes that they will not stop again.
SETTLE_SECONDS = 1.0
#: Printed on Ctrl-C at the program's own terminal, where Ctrl-C outside the debugger ends the program.
_LEAVING_HERE = "`quit` (or Ctrl-D) leaves the debugger, the program continues; then Ctrl-C ends the program"
#: Seconds to wait until a program that starts its first mesh accepts connections.
START_SECONDS = 30.0


def _connect(program: tools.Program, *, person: bool, listens: bool = False, waits: bool = False) -> Client:
    """Connect to a program. A person, who ``listens`` to notices, or who ``waits`` for stops is greeted at once."""
    with telling_slow(program):
        client = Client(
            lambda on_event, on_close: tools.connect(program, on_event, on_close), person=person, listens=listens
        )
        if person or listens or waits:
            try:
                client.greet()
            except BaseException:
                client.close()
                raise
        return client


def _prompt(client: Client, may_leave: Callable[[], bool], leaving: str = _LEAVING_HERE) -> tuple[Repl, Terminal]:
    repls: list[Repl] = []
    terminal = make_terminal(lambda text: repls[0].complete(text) if repls else [])
    repls.append(Repl(client, terminal, may_leave=may_leave, leaving=leaving))
    return repls[0], terminal


def _greet(terminal: Terminal, client: Client, *, empty: str = "") -> None:
    if terminal.interactive:
        terminal.write(BANNER + "\n")
        for line in client.stops or ([empty] if empty and not client.stopped else []):
            terminal.notice(line)


def _farewell(terminal: Terminal, client: Client, *, over: bool = False) -> None:
    if client.stopped and not client.closed() and over:
        terminal.write("the script's call is done and the script continues; stopped ranks end when the script ends\n")
    elif client.stopped and not client.closed():
        terminal.write(
            "ranks stay stopped, the program continues without them; python -m meshrt.debug reopens the debugger\n"
        )


def run_prompt(program: tools.Program) -> int:
    """Open the prompt on ``program`` at this process's standard streams. Returns an exit code."""
    client = _connect(program, person=True)
    repl, terminal = _prompt(client, lambda: False, LEAVING)
    try:
        _greet(terminal, client, empty="nothing is stopped yet; stops are announced here")
        code = repl.run()
        if terminal.interactive:
            _farewell(terminal, client)
        else:
            _tell_left(client, repl, code)
        return code
    finally:
        client.close()
        terminal.close()


def _tell_left(client: Client, repl: Repl, code: int) -> None:
    """If a script failed (``code`` is not 0), print what it leaves in the program to standard error."""
    if not code or client.closed():
        return
    try:
        breaks = client.ask(Breaks()).breaks if repl.breaks else []
        left = left_behind(breaks, repl.breaks, client.ask(ListRanks(state="stopped")).rows)
    except (MeshError, OSError) as error:  # a TimeoutError is an OSError
        left = f"breakpoints and stopped ranks are not known: {str(error) or 'the program does not answer'}"
    if left:
        print(left, file=sys.stderr)


def run_lines(program: tools.Program, lines: Sequence[str] | None, *, json: bool = False) -> int:
    """Run ``lines`` and leave. Returns an exit code.

    If a line fails, the lines after it are not run, and standard error says what the script leaves in the program.

    Args:
        lines: Commands of the prompt; None: the lines of standard input.
        json: Write one object for each line instead of text.
    """
    client = _connect(program, person=False, listens=json and lines is None)
    # With records, text for a person is dropped.
    shown = sys.stdout if sys.stdout is not None else io.StringIO()  # closed by the parent process
    out = io.StringIO() if json else shown
    terminal = LineTerminal(sys.stdin.fileno() if sys.stdin else os.open(os.devnull, os.O_RDONLY), out)
    recorder = Recorder(shown, DEBUG) if json else None
    try:
        repl = Repl(client, terminal, notices=False, record=recorder)
        if recorder is not None and lines is None:
            for text in client.stops:
                recorder(_notice(text))
            client.read_notices(lambda text: recorder(_notice(text)))
        code = repl.run() if lines is None else repl.run_lines(lines)
        if not json:
            _tell_left(client, repl, code)
        return code
    finally:
        client.mute()
        client.close()
        terminal.close()


def _notice(text: str) -> Mapping[str, object]:
    """Return the record of a notice: an event that no command has caused."""
    return {"event": "notice", "text": text}


def run_one(program: tools.Program, invocation: Invocation[Prompt], line: str, *, json: bool) -> int:
    """Run one command that was typed in a shell. Returns an exit code; raises what the command raises.

    Args:
        line: What was typed.
        json: Write one object instead of text.
    """
    interactive = _has_terminal() and not json
    stays = invocation.command.stays and interactive
    client = _connect(program, person=stays)
    shown = sys.stdout if sys.stdout is not None else io.StringIO()
    if stays:
        repl, terminal = _prompt(client, lambda: False, LEAVING)
    else:
        out = io.StringIO() if json else shown
        stdin = sys.stdin.fileno() if sys.stdin else os.open(os.devnull, os.O_RDONLY)
        terminal = LineTerminal(stdin, out, person=interactive, write=write_paged)
        repl = Repl(client, terminal, notices=False, record=Recorder(shown, DEBUG) if json else None)
    try:
        ok = repl.run_command(invocation, line)
        if stays or (ok and invocation.command.stays and not json):
            return repl.run()  # without a terminal: what comes on standard input
        return ExitCode.INTERRUPTED if repl.interrupted else ExitCode.OK if ok else ExitCode.FAILED
    except TimeoutError:
        raise MeshError("the program does not answer") from None
    finally:
        client.mute()
        client.close()
        terminal.close()


class _StoppedRanks:
    """Tells whether ranks are stopped, or may be soon. A prompt that leaves by itself asks it.

    Args:
        wake: Called, on a timer's thread, when `over` has to be asked again.
    """

    def __init__(self, client: Client, wake: Callable[[], None]) -> None:
        self._client = client
        self.wake = wake
        self._last = time.monotonic()
        self._timer: threading.Timer | None = None
        self.seen = False

    def over(self) -> bool:
        """Whether ranks were stopped and all of them run again. Any thread."""
        now = time.monotonic()
        if self._client.stopped:
            self.seen = True
            self._last = now
            return False
        if not self.seen:
            return False
        left = self._last + SETTLE_SECONDS - now
        if not self._client.resumed or left <= 0:
            return True
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Timer(left + 0.05, self.wake)
            self._timer.daemon = True
            self._timer.start()
        return False


def enter_here(waited: Waited) -> None:
    """Open the prompt in the thread that waits for ``waited``.

    It leaves when no rank is stopped and the wait is over.
    """
    program = tools.own_program()
    if program is None:
        return
    client = _connect(program, person=True)
    repl, terminal = _prompt(client, lambda: waited.done() and not client.stopped)

    def done(future: Waited) -> None:
        try:
            error = future.exception()
        except Exception:  # the thread may wait for something other than a call
            error = None
        if error is not None and client.stopped:
            headline = str(error).partition("\n")[0]
            terminal.notice(
                f"the script's call has failed; the error is shown when no rank is stopped any more. {headline}"
            )
        repl.look_up()

    waited.add_done_callback(done)
    client.stops.clear()  # this terminal has shown them already
    try:
        _greet(terminal, client)
        repl.run()
        _farewell(terminal, client, over=waited.done())
    finally:
        client.mute()
        client.close()
        terminal.close()


def _own_program() -> tools.Program | None:
    """Return the program of this process; wait while its first mesh starts. None: there is no mesh."""
    deadline = time.monotonic() + START_SECONDS
    while (program := tools.own_program()) is None and has_runtime() and time.monotonic() < deadline:
        time.sleep(0.02)
    return program


def enter(timeout: float | None) -> None:
    """Open the prompt in the calling thread, as `meshrt.debug.prompt.scripted` says.

    Args:
        timeout: Seconds to wait for the first stop; None: no limit.
    Raises:
        UsageError: This program has no mesh.
        TimeoutError: No rank has stopped within ``timeout`` seconds.
    """
    program = _own_program()
    if program is None:
        raise UsageError("there is no mesh in this program yet: make one before the debugger is entered")
    interactive = _has_terminal()
    client = _connect(program, person=interactive, waits=True)
    try:
        _wait_and_run(client, interactive, timeout)
    except KeyboardInterrupt:
        sys.stdout.write("\nleft the debugger; ranks that are stopped stay stopped\n")
    finally:
        client.mute()
        client.close()


def _wait_and_run(client: Client, interactive: bool, timeout: float | None) -> None:
    changed = threading.Event()
    told = list(client.stops)

    def notice(text: str) -> None:
        told.append(text)
        changed.set()

    client.read_notices(notice)
    client.on_change = changed.set
    stopped_ranks = _StoppedRanks(client, changed.set)
    if not told and not client.stopped and interactive:
        sys.stdout.write("waiting for a rank to stop (Ctrl-C leaves) ...\n")
        sys.stdout.flush()
    # The first stops are announced together, a moment later. Without a terminal nothing is announced here.
    begin = time.monotonic()
    while not (told or client.closed() or (client.stopped and not interactive)):
        left = None if timeout is None else begin + timeout - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError(f"no rank has stopped within {timeout:g} s")
        changed.wait(LOOK_SECONDS if left is None else min(left, LOOK_SECONDS))
        changed.clear()
    stopped_ranks.seen = True
    if not interactive:
        while not (client.closed() or stopped_ranks.over()):
            changed.wait(LOOK_SECONDS)
            changed.clear()
        return
    client.stops = told
    repl, terminal = _prompt(client, stopped_ranks.over)
    stopped_ranks.wake = repl.look_up
    _greet(terminal, client)
    try:
        repl.run()
        _farewell(terminal, client)
    finally:
        terminal.close()


def _has_terminal() -> bool:
    try:
        return bool(sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty())
    except ValueError:  # closed
        return False


def show(given: Arguments) -> int:
    """Run ``meshrt debug``. Returns the exit code."""
    if given["open"] is not None:
        return open_dump(given["open"], given["commands"])
    program = choose(given["run"], how="meshrt debug RUN", asks=not given["json"])
    if given["commands"] is not None or given["json"]:
        return run_lines(program, given["commands"], json=given["json"])
    return run_prompt(program)


def run_in_shell(invocation: Invocation[Prompt], run: str, line: str, *, json: bool) -> int:
    """Run a command of the prompt in a shell. Returns the exit code.

    Args:
        run: The program; "": the one that runs.
        line: What was typed.
        json: Write one object instead of text.
    """
    name = invocation.command.name
    program = choose(run, how=f"meshrt {name} -p RUN", asks=not json)
    try:
        return run_one(program, invocation, line, json=json)
    except UsageError as error:
        actor = (invocation.arguments or {}).get("actor", "")
        if not actor or f"{actor!r}" not in str(error) or named(actor, tools.programs()) is None:
            raise
        raise UsageError(f"{error}; {actor} is a program, to choose it: meshrt {name} -p {actor}") from None
