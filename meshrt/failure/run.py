"""``meshrt run``: a script with a parent process that can tell its launcher of a crash.

A process that a signal kills cannot tell why, and its launcher looks at once. So this process, which the launcher
started, forks one that runs the script, and waits. It tells the launcher what it knows, and only then ends, by the same
signal.

Signals that are sent to this process go on to the script, which is in a process group of its own: once, whether they
were sent to one process or to a group. Their effects are no failure, and the launcher is not told of them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshrt.host.oom import OutOfMemory
from meshrt.host.osutil import die_with_parent
from meshrt.show.forks import fork
from meshrt.transport.helper import interpreter
from meshrt.transport.launcher import FAULT_FILE

__all__ = ["Below", "run_alone", "run_below"]

#: Signals of what this process does itself, and those that no process can handle.
_OWN = {
    signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS,
    signal.SIGTTIN, signal.SIGTTOU, signal.SIGKILL, signal.SIGSTOP,
}  # fmt: skip
_PASSED_ON = signal.valid_signals() - _OWN
#: Signals that a terminal sends to all processes in its foreground. The first two would end this process.
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
_STACK_MAX = 1 << 16
#: Seconds that others have to notice the end of the script.
_NOTICED = 1.0


def run_alone(words: Sequence[str]) -> int:
    """Run ``python -u WORDS``. Returns its exit code, see `run_below`."""
    return run_below(lambda stacks: Below(functools.partial(_become, [*interpreter(), "-u", *words], stacks)))


def _become(command: list[str], stacks: int) -> int:
    os.set_inheritable(stacks, True)
    os.execv(command[0], command)


@dataclass(frozen=True)
class Below:
    """A script that is to run below this process.

    Attributes:
        run: Runs it, in the process that is forked for it. Returns its exit code.
        descriptors: It inherits these; they are closed here.
        noticed: Readable once others have noticed the end of the script, for which they need its process.
        failed: Called before this process ends, if the script has failed.
    """

    run: Callable[[], int]
    descriptors: Sequence[int] = ()
    noticed: socket.socket | None = None
    failed: Callable[[], object] = lambda: None


def run_below(prepare: Callable[[int], Below]) -> int:
    """Run a script. Returns its exit code; a signal that ends it ends this process too.

    Args:
        prepare: Returns the script, given the descriptor of the file that faulthandler writes to.
    Raises:
        ChildProcess: In the process of the script.
    """
    memory = OutOfMemory()
    stacks = os.memfd_create("meshrt-fault", os.MFD_CLOEXEC)
    below = prepare(stacks)
    # At a terminal both processes are in the foreground: the script may read, and Ctrl-C reaches both.
    alone = not os.isatty(0)
    passed_on: list[int] = [] if alone else list(_OF_A_TERMINAL)
    # Until the script runs, to which they are passed on.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    watcher = os.getpid()
    # If it is ignored, as a launcher may have left it, no end of a child can be waited for.
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def run() -> int:
        signal.signal(signal.SIGCHLD, on_child or signal.SIG_DFL)
        die_with_parent(watcher)
        if alone:
            os.setpgid(0, 0)
        os.environ[FAULT_FILE] = f"{stacks}:{watcher}"
        if below.noticed is not None:
            below.noticed.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return below.run()

    pid = fork(run)
    reaped = False

    def pass_on(number: int, _frame: object) -> None:
        passed_on.append(number)
        if not reaped:
            os.kill(pid, number)

    for number in _PASSED_ON:
        if signal.getsignal(number) is not signal.SIG_IGN and (alone or number not in _OF_A_TERMINAL):
            signal.signal(number, pass_on)
    for number in () if alone else _OF_A_TERMINAL[:2]:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for descriptor in below.descriptors:
        os.close(descriptor)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if below.noticed is not None:
        with below.noticed, contextlib.suppress(OSError):
            below.noticed.settimeout(_NOTICED)
            below.noticed.recv(1)
    reaped = True  # before the wait: after it, another process may have the number
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        below.failed()
    if code >= 0:
        return code
    if -code not in passed_on:
        hint = memory.evidence() if -code == signal.SIGKILL else ""
        from meshrt.failure.crash import tell_crash  # start-up: only where the script has crashed

        tell_crash(pid, -code, _stack(stacks), hint)
    return _end_by(-code)


def _stack(file: int) -> str:
    """Return the last output of faulthandler, from any fork of the script."""
    text = os.pread(file, 4 << 20, 0).decode("utf-8", errors="replace")
    crash = text.rfind("Fatal Python error")
    return text[crash:][:_STACK_MAX] if crash >= 0 else ""


def _end_by(number: int) -> int:
    """End by a signal; returns an exit code where that does not end this process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # otherwise this process would write a second core file
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
