"""How the script ends: what is printed when an exception ends it, and with which status it exits.

An exception that came from a rank is shown with the script's own frames only, in one line, and the report of the
failure follows. Ctrl-C is one line, or a few. A failure that was not reported yet (in a thread, a task, a
``broadcast``) is reported at the end, and the exit status is not 0. An error of user code that the runtime has called
(a hook) is shown without the runtime's frames too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from meshrt import errors
from meshrt.errors import CallTimeout, one_line
from meshrt.escapes import coloured
from meshrt.hooks.facts import UnreadError
from meshrt.hooks.plugins import plugins
from meshrt.mesh.alarm import Alarm
from meshrt.mesh.interrupted import waited_for
from meshrt.mesh.services import Services
from meshrt.mesh.status import exit_with
from meshrt.mesh.stopping import OverdueAgents
from meshrt.mesh.terminal import Terminal
from meshrt.mesh.tracebacks import (
    HEADLINE,
    awaiting,
    fold_in_ipython,
    folded,
    has_come_through,
    interrupted_at,
    is_of_a_rank,
    own_frames,
    place_of,
)
from meshrt.mesh.uncaught import Unawaited, unwatch_threads, watch_threads
from meshrt.selection import counted
from meshrt.show.colours import painted_for
from meshrt.transport import launcher
from meshrt.transport.driver import Driver
from meshrt.transport.pending import Pending
from meshrt.wire.codec import own_attribute, text_of

if TYPE_CHECKING:
    import asyncio

__all__ = ["Script"]

#: Seconds for which it counts what Ctrl-C has cancelled: until the script ends by it.
_REMEMBERED = 30.0


class Reporter(Protocol):
    """What the plug-in for failures leaves in ``RootServices.tables["failure"]``."""

    def collect(self, error: BaseException) -> None:
        """Wait for what belongs to ``error``, before its mesh is stopped."""

    def report(self, error: BaseException | None) -> str:
        """Return the report about ``error``, or about failures that were not reported yet."""

    def file_of(self, error: BaseException) -> Path | None:
        """Return the file of the failure that ``error`` is about; None: there is none."""

    def stopped(self, error: BaseException) -> str:
        """Say what was stopped, if that alone has led to ``error``; or ""."""

    def find(self, failure: str, mesh_id: str, rank: int) -> Any:
        """Return the record of a failure, or None."""

    def on_its_way(self, error: BaseException) -> None:
        """Tell the launcher of the script that it may end with ``error``."""

    def interrupted(self, error: BaseException, waited: CallTimeout, end: str) -> bool:
        """``end`` has ended the script while it waited: keep where ranks are; returns whether that is known."""

    def ended_by(self, error: BaseException) -> None:
        """The script ends by ``error`` without a report."""

    def thread_raised(self, error: BaseException, what: str) -> str:
        """Note an uncaught exception of a thread of the script, and return the number of the failure."""

    def tell_launcher(self, error: BaseException) -> None:
        """Tell the launcher of the script of an error of the script's own."""

    def begin_anew(self) -> None:
        """What fails from now on has nothing to do with what has failed."""

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Report calls to a mesh that are not answered for ``seconds``."""


class Script:
    """The end of the script of one root. On threads of the script."""

    def __init__(
        self, services: Services, driver: Driver, terminal: Terminal, alarm: Alarm, overdue: OverdueAgents
    ) -> None:
        self._services = services
        self._driver = driver
        self._terminal = terminal
        self._alarm = alarm
        self._overdue = overdue
        self._unawaited = Unawaited(is_of_a_rank)
        self._pid = os.getpid()
        self._before: Callable[[type[BaseException], BaseException, TracebackType | None], object] = sys.excepthook
        self._hook = self._excepthook  # one object, so that it can be compared with the hook that is installed
        self._reported = False
        #: The main thread has ended by an error: exceptions of other threads from then on follow from that.
        self.main_ended = False
        #: What the block that Ctrl-C has ended had waited for: the ranks of its mesh have ended when that is shown.
        self._waited_for: tuple[BaseException, str] | None = None

    def install(self) -> None:
        """Handle exceptions that end the script, in place of Python."""
        self._before = sys.excepthook
        sys.excepthook = self._hook
        fold_in_ipython()
        launcher.take()
        errors.find_record = self._find
        watch_threads(self._thread_raised)
        self._unawaited.install()

    def uninstall(self) -> None:
        """Undo `install`, unless another hook was set since, or an error of a rank is on its way to the hook."""
        self._unawaited.uninstall()
        if is_of_a_rank(sys.exc_info()[1]):
            return
        launcher.give_back()
        unwatch_threads(self._thread_raised)
        if sys.excepthook is self._hook:
            sys.excepthook = self._before
        if errors.find_record == self._find:
            errors.find_record = None

    def _find(self, failure: str, mesh_id: str, rank: int) -> Any:
        return self._reporter.find(failure, mesh_id, rank)

    def _thread_raised(self, error: BaseException, what: str) -> None:
        """A thread of the script has ended by an exception, and the program goes on. On that thread."""
        if self.main_ended:
            return
        number = ""
        try:
            number = self._reporter.thread_raised(error, what)
        finally:  # it has failed, although no record could be made
            self._services.unseen.append(number)

    def report_of(self, error: BaseException) -> str:
        """Return the report about an error that has ended a part of the script, such as a test, or ""."""
        if not is_of_a_rank(error):
            return ""
        return self._reporter.report(error)

    def file_of(self, error: BaseException) -> Path | None:
        """Return the file of the failure behind an error of which `report_of` has returned the report; or None."""
        return self._reporter.file_of(error)

    def begin_anew(self) -> None:
        """What fails from now on has nothing to do with what has failed before."""
        if "failure" in self._services.tables:  # else there is nothing that collects failures yet
            self._reporter.begin_anew()

    def take_unread(self) -> tuple[list[str], str]:
        """Return the errors that nobody has read, a line each, and a report on failures of which nobody was told.

        They count as read from then on, and what fails later has nothing to do with them.
        """
        unread = [_line_of(each) for each in self._alarm.take_unread()]
        unseen = [failure for failure in self._services.unseen if failure not in self._services.excused]
        report = self._reporter.report(None) if unseen else ""
        self._services.unseen.clear()
        self._reporter.begin_anew()
        return unread, report or (f"{counted(len(unseen), 'failure')} (not recorded)" if unseen else "")

    def take_unseen(self, before: Collection[str]) -> str:
        """Return a report on failures of which nobody was told, or ""; they count as told from then on.

        Args:
            before: Numbers of failures that it is not about.
        """
        unseen = self._services.unseen
        new = [failure for failure in tuple(unseen) if failure not in before and failure not in self._services.excused]
        if not new:
            return ""
        report = self._reporter.report(None)
        for failure in new:
            with contextlib.suppress(ValueError):  # a caller on a rank was told meanwhile
                unseen.remove(failure)
        self._reporter.begin_anew()
        return report or f"{counted(len(new), 'failure')} (not recorded)"

    def load_failures(self) -> None:
        """Load what collects failures."""
        plugins.load("failure", self._services, in_root=True)

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Report calls to a mesh that are not answered for ``seconds``."""
        self.load_failures()
        self._reporter.watch(mesh_id, seconds)

    def failed(self, error: BaseException) -> None:
        """A block that owns a mesh ends with an exception: its failure is collected before the mesh ends."""
        # On an event loop, Ctrl-C comes to a block as the cancellation that follows from it.
        for each in (error, own_attribute(error, "__context__")):
            if type(each) is KeyboardInterrupt and not self._knows_wait_of(each):
                self._waited_for = each, self._wait_of(error)
        if type(error).__name__ == "CancelledError" and self._given_up() is not None and not self._waited_for:
            self._waited_for = error, self._wait_of(error)
        of_a_rank = is_of_a_rank(error)
        if of_a_rank or launcher.launcher_file() is not None:
            self._reporter.on_its_way(error)
        if of_a_rank:
            self._reporter.collect(error)

    @property
    def _reporter(self) -> Reporter:
        """What collects failures: it is loaded when it is first needed."""
        self.load_failures()
        reporter: Reporter = self._services.tables["failure"]
        return reporter

    def at_end(self, *, sets_status: bool) -> None:
        """Report failures that were not reported yet; with ``sets_status`` the process is about to exit."""
        lost = self._alarm.close()
        self._services.unseen += tuple(self._alarm.unread)
        unseen = [failure for failure in self._services.unseen if failure not in self._services.excused]
        untold = [*(each.error for each in lost), *filter(self._has_failed, self._unawaited.errors)]
        if not (untold or unseen or self._overdue.unheard):
            return
        if not self._reported and (untold or unseen):
            self._report_untold(unseen, untold)
        if sets_status:
            exit_with(1)

    def _report_untold(self, unseen: Sequence[str], untold: Sequence[BaseException]) -> None:
        """Print the report on failures, by their numbers, and on errors that were not reported yet; not both empty."""
        what = one_line(text_of(untold[0]), HEADLINE) if untold else ""
        if unseen:
            what = f"{len(unseen)} failure" + ("" if len(unseen) == 1 else "s")
            what = f"at least {what}" if len(self._services.unseen) == self._services.unseen.maxlen else what
        try:
            report = self._reporter.report(None) if unseen else ""
            if not report and untold:  # a host was lost with its reports on others: at least the loss is known
                report = self._reporter.report(untold[0])
        except Exception as error:  # no descriptor, no memory: it counts as failed all the same
            why = f"no report could be made: {type(error).__name__}: {text_of(error)}"
            self._print(f"meshrt: no caller has received {what}; {why}\n")
        else:
            # A rank that fails all the time does not record each time; nor is what fails behind the grace recorded.
            answers = [f"  {_line_of(unread)}\n" for number in unseen if (unread := self._alarm.unread.get(number))]
            untold_of = f"meshrt: no caller has received {what} (not recorded){':' * bool(answers)}\n"
            self._print(f"\n{report}" if report else untold_of + "".join(answers))

    def _has_failed(self, error: BaseException) -> bool:
        """Whether an error is about more than what the script itself has stopped."""
        try:
            return not self._reporter.stopped(error)
        except Exception:  # as in `_report_untold`, which says why
            return True

    def terminated(self, task: asyncio.Task[object] | None, awaited: Pending | None) -> None:
        """SIGTERM ends the script while its main thread waits: keep where the ranks are that have not answered.

        Args:
            task: The asyncio task that awaits; None: the thread itself waits.
            awaited: What the task awaits.
        """
        walker: TracebackType | None = None
        for frame in own_frames() if task is None else reversed(list(awaiting(task))):
            walker = TracebackType(walker, frame, frame.f_lasti, frame.f_lineno)
        waited = self._wait_of(KeyboardInterrupt().with_traceback(walker), awaited, "SIGTERM ended the script")
        if waited:
            self._print(f"meshrt: ended by SIGTERM{place_of(walker)}\nmeshrt: {waited}\n")

    def _excepthook(self, kind: type[BaseException], error: BaseException, walker: TracebackType | None) -> None:
        if os.getpid() != self._pid or self._before is not sys.__excepthook__:
            self._before(kind, error, walker)
            if os.getpid() == self._pid:
                self._tell(error)
            return
        try:
            self._show(kind, error, walker)
        except KeyboardInterrupt:  # the user does not wait for the report: print what there is
            if issubclass(kind, KeyboardInterrupt):
                self._print(f"meshrt: interrupted{interrupted_at(error, walker)}\n")
            else:
                self._before(kind, error, walker)
        except Exception as failure:  # of a hostile exception class, for example
            self._before(kind, error, walker)
            self._print(f"meshrt: no report could be made: {type(failure).__name__}: {failure}\n")

    def _show(self, kind: type[BaseException], error: BaseException, walker: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            waited = self._wait_of(error)
            place = interrupted_at(error, walker)
            self._print(f"meshrt: interrupted{place}\n" + (f"meshrt: {waited}\n" if waited else ""))
        elif not is_of_a_rank(error):
            if has_come_through(walker):
                self._print("".join(folded(traceback.TracebackException.from_exception(error), error, brief=False)))
            else:
                self._before(kind, error, walker)
            self._tell(error)
        else:
            reporter = self._reporter
            self._reported = True
            report = reporter.report(error)
            stopped = "" if report else reporter.stopped(error)
            self._reported = not stopped
            text = "".join(folded(traceback.TracebackException.from_exception(error), error, brief=bool(report)))
            text += f"meshrt: {stopped}\n" if stopped else ""
            self._print(text + (f"\n{report}" if report else ""))
            if stopped and launcher.launcher_file() is not None:
                reporter.tell_launcher(error)

    def _knows_wait_of(self, error: BaseException) -> bool:
        if self._waited_for is None:
            return False
        # A second Ctrl-C, during the stop that the first one has caused, follows from it.
        return any(each is self._waited_for[0] for each in (error, own_attribute(error, "__context__")))

    def _wait_of(self, error: BaseException, awaited: Pending | None = None, end: str = "you interrupted") -> str:
        """Return what a script that Ctrl-C or SIGTERM ends has waited for, in lines.

        Of a call that hangs, a report is kept.

        Args:
            awaited: What it awaits, if that is known; None: what Ctrl-C has cancelled, or the traceback tells.
            end: What ends it, in words that follow "when".
        """
        if self._waited_for is not None and self._knows_wait_of(error):
            return self._waited_for[1]
        activity = self._services.tables.get("inspect.activity")
        awaited = self._given_up() if awaited is None else awaited
        found = waited_for(own_attribute(error, "__traceback__"), awaited, activity)
        if found is None:
            return ""
        if not found.hangs:
            return found.text
        known = self._reporter.interrupted(error, found.call, end)
        more = [f"where all ranks were: meshrt postmortem {self._services.run_id}"] if known else []
        return "\nmeshrt: ".join([found.text, *found.waits, *more])

    def _given_up(self) -> Pending | None:
        """Return what was awaited when Ctrl-C cancelled that; None if nothing was."""
        since = time.monotonic() - _REMEMBERED
        return next((pending for pending, when in self._driver.waits.cancelled if when >= since), None)

    def _tell(self, error: BaseException) -> None:
        """Tell the launcher, if there is one; on the terminal an excepthook of the program itself prints."""
        if issubclass(type(error), KeyboardInterrupt):
            return
        told, of_a_rank = launcher.launcher_file() is not None, is_of_a_rank(error)
        if told and of_a_rank:
            self._reporter.report(error)
        elif told:
            self._reporter.tell_launcher(error)
        elif of_a_rank:
            self._reporter.ended_by(error)

    def _print(self, text: str) -> None:
        self._terminal.flush()
        try:
            sys.stderr.write(painted_for(sys.stderr, coloured(text)))
            sys.stderr.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the reader has closed it; the file has it


def _line_of(unread: UnreadError) -> str:
    return f"{unread.actor}.{unread.endpoint}() raised on rank {unread.rank}: {unread.error}"
