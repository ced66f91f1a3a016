"""What a script tells its launcher: why it fails, so that the launcher names the right one of its workers.

::

    (nothing) -> said      an error is on its way out of the script: to stop the ranks may take time, and another worker
                           may end before; the launcher then stops this one, and reads the file
    said -> (nothing)      the script has handled the error
    (nothing), said -> final   the script ends by it
    (nothing), said -> thread  an error has ended a thread of the script, and the script goes on; that stays, whatever
                               ends the script, until the report says what led to what

A worker that seems to be the victim of another one lets that one end first: if there is no file, the launcher takes
the first end that it sees for the cause.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from meshrt import errors
from meshrt.actor.errors import describe_exception
from meshrt.failure import torchelastic
from meshrt.failure.capture import capture, references
from meshrt.failure.causes import is_consequence
from meshrt.failure.record import FailureRecord
from meshrt.failure.report import left_lines
from meshrt.failure.workers import NOTED_WITHIN, Word, cause_of, locked, others_of, own_rank, second_of
from meshrt.mesh.status import exit_with
from meshrt.mesh.uncaught import watch_threads
from meshrt.transport import launcher
from meshrt.transport.kernel import start_of, started_before
from meshrt.wire.codec import text_of

__all__ = ["record", "tell", "tell_error", "withdraw"]

#: Seconds that a victim waits for the word of its cause, once; and then for the end of that worker.
_PATIENCE = 1.0
_END = 3.0
_PAUSE = 0.02
#: Whether this process has waited.
_waited = False
#: Pid of the process that has told of an error of a thread.
_told_of_thread = 0

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def tell(word: Word, text: str, facts: Mapping[str, object] | None = None, *, final: bool = True) -> None:
    """Tell the launcher, if there is one, why this process fails. A thread of the script. Raises OSError.

    Args:
        word: Its second is that of the failure; the second in the file may differ, see `meshrt.failure.workers`.
        text: What the launcher shows as traceback.
        facts: Everything that is known, as plain data.
        final: The script ends by it. A victim then waits for its cause.
    """
    path = launcher.launcher_file()
    if path is None:
        return
    word = replace(word, rank=own_rank(), pid=os.getpid())
    text = _with_children(text)
    alone, cause = _say(path, word, text, facts, settled=False)
    if not final or alone:
        return
    if word.evidence != "own":
        cause = cause or _wait_for_cause(path, word)
        _say(path, word, text, facts, settled=True)
    if cause is not None and cause.pid:
        _wait(lambda: _has_ended(cause.pid, cause.high), _END)


def _say(
    path: Path, word: Word, text: str, facts: Mapping[str, object] | None, *, settled: bool
) -> tuple[bool, Word | None]:
    """Write the file; returns whether this is the only worker here, and the word of the cause if it is known.

    Args:
        settled: No word of a cause will come any more. Until then, a victim writes a time one second later.
    """
    if not others_of(path):
        _write(path, word, text, facts)
        return True, None
    with locked(path):
        known = _words(path)
        cause = cause_of(word, known)
        expected = cause is None and word.evidence != "own" and not settled
        word = replace(word, second=second_of(word, known) + expected)
        if cause is not None:
            word = replace(word, after=cause.rank)
            text = f"worker {cause.rank} had failed before: {cause.headline}\n\n{text}"
        _write(path, word, text, facts)
    return False, cause


def _write(path: Path, word: Word, text: str, facts: Mapping[str, object] | None) -> None:
    torchelastic.write(path, word.headline, text, word.second, {"worker": word.to_plain(), **(facts or {})})


def _with_children(text: str) -> str:
    """Add the error that a child process of this one has written."""
    path = launcher.children_file()
    left = torchelastic.read(path) if path is not None else None
    if left is None or (left.message and left.message in text):
        return text  # TorchElastic's own `record` has written it, around the same error
    return text.rstrip("\n") + "\n" + "\n".join(left_lines(left, full=True)) + "\n"


def _words(path: Path) -> list[Word]:
    return [word for word in others_of(path).values() if word is not None]


def _wait_for_cause(path: Path, word: Word) -> Word | None:
    global _waited
    if _waited:
        return None
    _waited = True
    return _wait(lambda: cause_of(word, _words(path)), _PATIENCE)


def _wait(condition: Callable[[], T], seconds: float) -> T:
    """Wait until ``condition`` returns something true; returns what it has returned last."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(_PAUSE)  # the condition is of another process: no event reports it
    return found


def _has_ended(pid: int, failed: int) -> bool:
    """Whether the launcher has seen the end of a worker that failed at ``failed`` (monotonic ns)."""
    try:
        start = start_of(pid)
    except OSError:
        return False  # not known
    return not start or not started_before(start, failed)  # otherwise the pid belongs to another process by now


def withdraw() -> None:
    """Withdraw the file: the script has handled the error. Any thread."""
    path = launcher.launcher_file()
    if path is not None and not _has_told_of_thread():
        path.unlink(missing_ok=True)


def tell_error(error: BaseException, *, final: bool = True, foreign: bool = True, since: int = 0) -> None:
    """Tell the launcher of an exception. A write error is reported, and the exception goes on.

    Args:
        foreign: If the exception is about a rank, then of a mesh of another script.
        since: Earliest time of the failure, monotonic ns; 0 if it has happened just now.
    """
    if _has_told_of_thread():
        return  # that was before
    remote = describe_exception(error)
    now = time.monotonic_ns()
    headline = f"{remote.type}: {remote.message}".strip().partition("\n")[0]
    *_, (cause, _) = [(error, None), *references(error)]
    if cause is not error:
        headline += f", caused by: {text_of(cause).partition(chr(10))[0]}"
    record = FailureRecord(
        exception=capture(error),
        host=os.uname().nodename,
        pid=os.getpid(),
        low=now,
        high=now,
        time=time.time_ns() / 1e9,
    )
    evidence = _evidence(error, record, foreign=foreign)
    # The time of a failure elsewhere is not known.
    low = 0 if evidence == "carried" else since or now - NOTED_WITHIN
    word = Word(evidence=evidence, low=low, high=now, second=int(record.time), headline=headline)
    try:
        tell(word, remote.traceback or remote.type, {"records": [record.to_plain()]}, final=final)
    except OSError as failure:
        os.write(2, f"meshrt: the error could not be reported to the launcher: {failure.strerror}\n".encode())


def tell_thread_error(error: BaseException, *, foreign: bool = True, since: int = 0) -> None:
    """Tell the launcher of an exception that has ended a thread of the script; the first one stays."""
    global _told_of_thread
    if launcher.launcher_file() is not None and isinstance(error, Exception):
        tell_error(error, final=False, foreign=foreign, since=since)
        _told_of_thread = os.getpid()


def _has_told_of_thread() -> bool:
    return _told_of_thread == os.getpid()


def _evidence(error: BaseException, record: FailureRecord, *, foreign: bool) -> str:
    if foreign and next(references(error), None) is not None:
        return "carried"
    # A script that exits by itself may have been asked to, by a signal.
    if isinstance(error, SystemExit) or is_consequence(record):
        return "inferred"
    return "own"


def record(function: F) -> F:
    """Decorate the main function of a script: its launcher, such as ``torchrun``, gets the reason if it fails.

    As ``torch.distributed.elastic.multiprocessing.errors.record``, without torch; ``sys.exit("why")`` is told as well.
    If a rank of a mesh has failed, the whole report is told at the end of the script; that needs no decorator.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            with recording():
                return await function(*args, **kwargs)

        return cast("F", asynchronous)

    return recording()(function)


def _thread_raised(error: BaseException, _what: str) -> None:
    """An exception has ended a thread of a decorated script: with a mesh, the end of the script tells more."""
    if errors.find_record is None:
        tell_thread_error(error)
        atexit.register(exit_with, 1)  # runs after the end of all threads


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Tell the launcher of the exception by which the block ends; see `record`."""
    taken = launcher.take()
    watch_threads(_thread_raised)
    try:
        yield
    except (Exception, SystemExit) as error:
        if not isinstance(error, SystemExit) or error.code not in (None, 0):
            # With a mesh, the end of the script tells more, but not about sys.exit().
            last = errors.find_record is None or isinstance(error, SystemExit)
            tell_error(error, final=last, foreign=errors.find_record is None)
        raise
    finally:
        if taken:
            launcher.give_back()
