"""The root's side: collects failures, asks ranks for their stacks, writes the file, and reports to the script.

Methods run on the root's loop, unless their docstring names a thread of the script. An incident is open for `_OPEN`
seconds after its last failure. Its file is written when the stacks are there, and again, a little later, when more
failures have come.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from meshrt.actor.errors import number_failure
from meshrt.errors import CallTimeout, MeshError, ProtocolError
from meshrt.failure import files, torchelastic
from meshrt.failure.incident import FAILED, HANDLED, INTERRUPTED, Incident, IncidentMesh, keep_stacks
from meshrt.failure.lastwords import LastWords
from meshrt.failure.noticed import of_fate, of_silence, sharing, shortened, unanswered, with_source
from meshrt.failure.rank import Recorder
from meshrt.failure.record import SCRIPT, FailureRecord, LeftBehind, Recorded, Reference
from meshrt.failure.report import render
from meshrt.failure.stops import Stops
from meshrt.failure.told import call_of, caller_of, record_of, sent_at, silences
from meshrt.failure.watchdog import Watchdog
from meshrt.hooks.facts import Gathered, Raised
from meshrt.hooks.fate import Fate
from meshrt.hooks.services import PendingCall, RootServices
from meshrt.hooks.snapshot import MeshFacts
from meshrt.hooks.table import hooks
from meshrt.inspect.masking import without_secrets, without_secrets_in_command
from meshrt.inspect.records import ReadStacks, Threads, Times
from meshrt.inspect.tree import StackAnswer
from meshrt.transport.directories import command_name, error_path
from meshrt.wire.codec import own_attribute

__all__ = ["Failures", "load"]


#: Seconds that ranks have to answer with their stacks; and seconds after which another incident may ask again.
_STACK_SECONDS = 0.8
_ASK_AGAIN = 5.0
#: Seconds without a failure after which the next one begins a new incident.
_OPEN = 2.0
#: ... of ranks that a launcher ends: torchrun gives them 30 s.
_OPEN_JOINED = 35.0
#: Seconds from a late failure to the file that contains it, or so many times what the last write took: the loop of the
#: root has other things to do than to write thousands of failures again and again.
_WRITE_AGAIN = 0.1
_PAUSE = 20
#: Seconds that the end of the script waits for the records of the failures it was told of, and for the file.
_PATIENCE = 1.0
#: ... and for the loop of the root, which adds what threads of the script have recorded: it is never blocked for long.
_REACHED = 10.0
#: ... and for further records, until none has come for so long.
_QUIET = 0.2
#: Seconds after which an incident that is full is over, though there was no time without a failure.
_LONGEST = 60.0
#: Failures of one incident that are kept in full; in all; and, once it is over because it was full, the first and the
#: latest ones in memory.
_FULL = 64
_MOST = 2048
_ENDS = 256
#: Meshes of one incident with which it is full.
_MESHES = 256
#: With so many of the latest ones a record shares what is equal: its cause, and what followed from it on the way.
_ALIKE = 4
#: Incidents that are kept in memory: an error may be raised long after its failure.
_INCIDENTS = 10


class Failures:
    """The failures of one program. On the root's loop, where a method does not say otherwise."""

    def __init__(self, services: RootServices, run_directory: Path) -> None:
        self._services = services
        self._run_directory = run_directory
        self._changed = threading.Condition()
        #: The latest incidents, the current one last.
        self._incidents: deque[Incident] = deque(maxlen=_INCIDENTS)
        self._last = 0.0
        #: When the current incident began, and how many meshes there were.
        self._began = 0.0
        self._met = 0
        #: Numbers of incidents of which memory has a part only: the file has all of it.
        self._put_away: set[int] = set()
        self._asked = 0.0
        #: Whether the stacks of the current incident have come, or will not come.
        self._collected = False
        #: By mesh, rank and pid, while the stacks are collected: what a process had not answered when its end was told.
        self._owed: dict[tuple[str, int, int], Sequence[PendingCall]] = {}
        #: The answers with the stacks.
        self._answers: list[StackAnswer] = []
        self._writing = False
        #: Seconds that the last write took.
        self._took = 0.0
        #: Number of the incident in the file, and number of its failures there.
        self._written = (0, 0)
        self._warned = False
        self._last_words = LastWords(services, self._is_own)
        #: Modification times of the error files of ranks, when they were last read.
        self._error_files: dict[Path, int] = {}
        self._stops = Stops(services)
        #: Time-outs that already have a record.
        self._silences: weakref.WeakSet[CallTimeout] = weakref.WeakSet()
        #: Records exceptions of the script itself.
        self._script = Recorder(_of_this_process(SCRIPT, -1), self.own)

    # -- what comes in

    def record(self, mesh_id: str, rank: int, recorded: Recorded) -> None:
        """A rank reports an exception."""
        record = recorded.record
        incident = self._incidents[-1] if self._incidents else None
        if self._stops.excuse(record, ended=incident is not None and incident.outcome == INTERRUPTED):
            with self._changed:
                self._changed.notify_all()
            return
        interrupted = self._services.interrupted(mesh_id)
        if interrupted and record.high > interrupted:
            return  # raised by code that the end of its mesh has interrupted
        if not record.coordinates:
            facts = self._services.mesh(mesh_id)
            record = replace(record, coordinates=dict(facts.shape.coordinates(rank)) if facts is not None else {})
        if record.exception is not None:
            record = replace(record, exception=with_source(record.exception))
        self._add(record)

    def own(self, record: FailureRecord, *, needed: bool = False) -> None:
        """Add a record of the script's own process, also that ranks have not answered to it. Any of its threads.

        Args:
            needed: The script ends by it: it is kept in full, also by an incident that is full.
        """
        self._services.call_soon(lambda: self._add(record, needed=needed))

    def thread_raised(self, error: BaseException, what: str) -> str:
        """An exception has ended a thread of the script; returns the id of its record. That thread."""
        raised = Raised(number_failure(), error, None, time.monotonic_ns(), what)
        self._script.raised(raised)
        self._last_words.of_thread(error)
        return raised.failure

    def lost(self, mesh_id: str, rank: int, fate: Fate, owed: Sequence[PendingCall]) -> None:
        """A rank has ended without being stopped."""
        incident = self._incidents[-1] if self._incidents else None
        if fate.kind == "host" and incident is not None:
            for index, other in enumerate(incident.records):
                if (other.kind, other.mesh_id, other.host) == ("host", mesh_id, fate.host):
                    together = replace(other, ranks=(*other.ranks, rank))
                    incident.records = (*incident.records[:index], together, *incident.records[index + 1 :])
                    return
        self._add(of_fate(mesh_id, rank, fate, self._services.mesh(mesh_id), owed))
        if not self._collected:
            self._owed[mesh_id, rank, fate.pid] = owed

    def _reach_loop(self) -> None:
        """Wait until what the loop was told before is done. A thread of the script."""
        reached = threading.Event()
        self._services.call_soon(reached.set)
        reached.wait(_REACHED)

    def _add(self, record: FailureRecord, *, needed: bool = False) -> None:
        now = time.monotonic()
        if record.mesh and record.rank >= 0 and record.kind != "silent":
            record = replace(record, left=self._left_behind(record))
        with self._changed:
            facts = self._services.mesh(record.mesh_id)
            earlier = self._of_earlier_incidents(record)
            new = self._is_over(now, _OPEN_JOINED if facts is not None and facts.joined else _OPEN)
            incident = self._begin(now) if new else self._incidents[-1]
            incident.records += tuple(each for each in earlier if each not in incident.records)
            self._last = now
            if all(mesh.mesh_id != record.mesh_id for mesh in incident.meshes):
                incident.meshes = (*incident.meshes, _mesh_then(facts)) if facts is not None else incident.meshes
            # One that no caller waits for may be what is reported at the end.
            room = _MOST if record.waited_for else _MOST + _ENDS
            if len(incident.records) >= room and not needed:
                incident.left_out += 1
            else:
                if len(incident.records) >= _FULL and not needed:
                    record = shortened(record)
                for other in incident.records[-_ALIKE:]:
                    record = sharing(record, other)
                incident.records = (*incident.records, record)
            self._changed.notify_all()
        if new:
            self._collect(incident, now)
        elif self._collected:
            self._write_soon()

    def _is_over(self, now: float, is_open: float) -> bool:
        """Whether the next failure begins an incident. One that is full is put away. Under the lock.

        Args:
            is_open: Seconds without a failure after which that is so.
        """
        if not self._incidents or now - self._last > is_open:
            return True
        incident = self._incidents[-1]
        is_full = len(incident.records) >= _MOST or len(incident.meshes) - self._met >= _MESHES
        if not is_full or now - self._began <= _LONGEST:
            return False
        # Failures have come for long, and the program goes on: the next one may be what ends it.
        incident.outcome = incident.outcome or HANDLED
        if self._write(incident):
            records, unseen = incident.records, set(self._services.unseen)
            untold = [record for record in records[_ENDS:-_ENDS] if record.id in unseen]
            incident.records = (*records[:_ENDS], *untold[-_ENDS:], *records[_ENDS:][-_ENDS:])
            named = {record.mesh_id for record in incident.records}
            incident.meshes = tuple(mesh for mesh in incident.meshes if mesh.mesh_id in named)
            self._put_away &= {each.number for each in self._incidents}
            self._put_away.add(incident.number)
        return True

    def _whole(self, incident: Incident | None) -> Incident | None:
        """Return an incident with all that its file has, if it was put away. Under the lock."""
        if incident is not None and incident.number in self._put_away:
            self._put_away.discard(incident.number)
            try:
                known = files.read(files.path_of(self._run_directory, incident.number))
            except MeshError as error:
                self._services.announce(f"the report is incomplete: {error}")
            else:
                incident.records, incident.meshes = known.records, known.meshes
        return incident

    def _of_earlier_incidents(self, record: FailureRecord) -> list[FailureRecord]:
        """Return the failures behind a new one, also if they came long before: a rank may pass an error on late."""
        found: list[FailureRecord] = []
        waiting = [record]
        while waiting and len(found) < _FULL:
            each = waiting.pop()
            abouts = [facts.about for facts in each.exceptions()] + [each.because]
            for about in abouts:
                incident = None if about is None or not about.failure else self._incident_of(about)
                other = None if about is None or incident is None else _find(about, incident)
                if other is not None and other is not record and other not in found:
                    found.append(other)
                    waiting.append(other)
        return found

    def _left_behind(self, record: FailureRecord) -> LeftBehind | None:
        """Return what the rank, or a child of it, has written to its error file since the last read."""
        path = error_path(self._run_directory, record.mesh, record.mesh_id, record.rank)
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return None
        if self._error_files.get(path) == changed:
            return None
        self._error_files[path] = changed
        return torchelastic.read(path)

    def _begin(self, now: float) -> Incident:
        self._began = now
        number = self._incidents[-1].number + 1 if self._incidents else 1
        argv = tuple(without_secrets_in_command(sys.orig_argv))
        run_id = self._services.run_id
        name = command_name(run_id, self._run_directory)
        found_by = "" if name == run_id else name
        incident = Incident(number, run_id, found_by, argv, time.time_ns() / 1e9)
        self._incidents.append(incident)
        incident.meshes = tuple(_mesh_then(mesh) for mesh in self._services.meshes())
        self._met = len(incident.meshes)
        self._collected = False
        self._answers = []
        return incident

    # -- stacks and file

    def _collect(self, incident: Incident, now: float) -> None:
        """Ask all ranks for their stacks, before they change."""
        targets = {mesh.mesh_id: mesh.alive for mesh in incident.meshes if mesh.alive}
        if not targets or (self._asked and now - self._asked < _ASK_AGAIN):
            incident.stacks_why = "stacks not collected (collected shortly before)" if targets else ""
            self._done(incident)
            return
        self._asked = now
        incident.asked = time.monotonic_ns()
        answers = self._answers = []

        def report(gathered: Gathered[Threads, Times]) -> None:
            answers.extend(gathered.groups)
            if gathered.done:
                self._done(incident)

        try:
            self._services.gather(targets, ReadStacks(), _STACK_SECONDS, report, stack_suffices=True)
        except ProtocolError as error:
            incident.stacks_why = str(error)
            self._done(incident)

    def _done(self, incident: Incident) -> None:
        with self._changed:
            incident.records = tuple(map(self._as_answered, incident.records))
        self._owed.clear()  # their answers may be large
        if incident is self._incidents[-1]:
            self._collected = True
        self._write(incident)

    def _as_answered(self, record: FailureRecord) -> FailureRecord:
        owed = self._owed.get((record.mesh_id, record.rank, record.pid))
        return record if owed is None else replace(record, doing=unanswered(owed))

    def _write_soon(self) -> None:
        if not self._writing:
            self._writing = True
            self._services.call_later(max(_WRITE_AGAIN, _PAUSE * self._took), self._write_again)

    def _write_again(self) -> None:
        self._writing = False
        self._write(self._incidents[-1])

    def watch(self, mesh_id: str, seconds: float) -> None:
        """Report calls to a mesh that are not answered for ``seconds``. Any thread."""
        self._services.call_soon(Watchdog(self._services, mesh_id, seconds).look)

    def begin_anew(self) -> None:
        """What fails from now on is another incident, however soon. Any thread."""
        with self._changed:
            self._last = -math.inf

    def finish(self) -> None:
        """The program ends: write the failures that have come since the last write, with the outcome `HANDLED`."""
        for incident in tuple(self._incidents):
            late = incident is self._incidents[-1] and self._written != (incident.number, len(incident.records))
            if not incident.outcome or late:
                incident.outcome = incident.outcome or HANDLED
                self._write(incident)

    def ended_by(self, error: BaseException) -> None:
        """The script has ended by ``error`` and shows the error itself. A thread of the script."""
        _end_waiting(error)
        self._collect_last(error, FAILED)
        self._note(error, FAILED)

    def _collect_last(self, error: BaseException, outcome: str, end: str = "") -> None:
        """Wait for the records of the error that ends the program. Ctrl-C ends this wait only."""
        try:
            self.collect(error, end=end)
        except KeyboardInterrupt:
            self._note(error, outcome)
            raise

    def _note(self, error: BaseException, outcome: str) -> None:
        with self._changed:
            incident = self._meant_by(error)
            if incident is not None:
                incident.outcome = outcome
                self._write(incident)

    def interrupted(self, error: BaseException, waited: CallTimeout, end: str) -> bool:
        """Ctrl-C or SIGTERM has ended the script while it waited for ranks. A thread of the script.

        Args:
            end: Which of them, in words that follow "when".

        Returns whether the stacks of these ranks are known.
        """
        self._collect_last(waited, INTERRUPTED, end)
        with self._changed:
            incident = self._meant_by(waited)
            if incident is None:
                return False
            incident.caller = caller_of(error)
            incident.call = waited.what
            incident.outcome = INTERRUPTED
            self._write(incident)
            return bool(incident.hung.meshes or incident.stacks.meshes)

    def _write(self, incident: Incident) -> bool:
        """Write the file. Any thread. A write error is reported once: the report goes to the terminal anyway.

        Returns whether the file was written.
        """
        with self._changed:
            begun = time.monotonic()
            if incident is self._incidents[-1] and self._answers:
                keep_stacks(incident, self._answers)
            try:
                files.write(self._run_directory, incident)
                self._written = (incident.number, len(incident.records))
                return True
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    self._services.announce(f"the failure could not be written to a file: {error.strerror}")
                return False
            finally:
                self._took = time.monotonic() - begun
                self._changed.notify_all()

    # -- the script's last words

    def collect(self, error: BaseException, *, end: str = "") -> None:
        """Wait for the records of ``error``, before its mesh is stopped. A thread of the script.

        Args:
            end: What has ended the wait, in words, if it was no time-out.
        """
        wanted = list(self._stops.references(error))
        if not wanted:
            return
        for silence in silences(error):
            if silence not in self._silences:
                self._silences.add(silence)
                name = self._name_of(silence.missing[0].mesh_id)
                self.own(of_silence(silence, name, end=end), needed=True)

        def complete() -> bool:
            return (self._collected or not self._incidents) and all(self._is_known(about) for _, about in wanted)

        with self._changed:
            deadline = time.monotonic() + _PATIENCE
            self._changed.wait_for(complete, _PATIENCE)
            # Ranks that fail alike fail at about the same time.
            while (quiet := self._last + _QUIET - time.monotonic()) > 0 and time.monotonic() < deadline:
                self._changed.wait(quiet)
            unknown = [each for each, about in wanted if not self._is_known(about)]
        for each in unknown:
            # The record was only counted, or was lost: the error itself tells enough.
            place = own_attribute(each, "__dict__").get("place")
            record = record_of(each, self._name_of(place.mesh_id), sent_at(error)) if place is not None else None
            if record is not None:
                # The time at which a rank of another program failed is not known: some time before its error came here.
                record = record if self._is_own(record.mesh_id) else replace(record, low=0, time=0.0)
                self.own(record, needed=True)
                self._reach_loop()
        with self._changed:
            incident = self._meant_by(error)
            if incident is not None:
                incident.caller = caller_of(error) or incident.caller
                incident.call = call_of(error) or incident.call
                incident.error = without_secrets(str(error).partition("\n")[0][:2000], prose=True)
                # Times of another program's clock cannot be compared here.
                incident.about = tuple(about for _, about in wanted)
                incident.since = sent_at(error) if all(self._is_own(about.mesh_id) for _, about in wanted) else 0

    def _name_of(self, mesh_id: str) -> str:
        facts = self._services.mesh(mesh_id)
        return "" if facts is None else facts.name

    def _is_own(self, mesh_id: str) -> bool:
        """Whether a mesh belongs to this program ("" is the script itself): errors may come from another program.

        Any thread.
        """
        with self._changed:
            known = {mesh.mesh_id for incident in self._incidents for mesh in incident.meshes}
        return mesh_id in known or not mesh_id or self._services.mesh(mesh_id) is not None

    def _incident_of(self, about: Reference) -> Incident | None:
        """Return the latest incident that contains a failure. Under the lock."""
        return next((each for each in reversed(self._incidents) if _find(about, each) is not None), None)

    def _is_known(self, about: Reference) -> bool:
        """Whether a failure has a record, or is none. Under the lock."""
        return about.failure in self._stops.excused or self._incident_of(about) is not None

    def _meant_by(self, error: BaseException) -> Incident | None:
        found = (self._incident_of(about) for _, about in self._stops.references(error))
        return self._whole(next((each for each in found if each is not None), None))

    def stopped(self, error: BaseException) -> str:
        """Return what was stopped, if no other cause of ``error`` is known; or "". Any thread."""
        return self._stops.only_stopped(error)

    def report(self, error: BaseException | None) -> str:
        """Return the report about ``error``, or about a failure that no call has raised; "" if none. Any thread."""
        if error is not None:
            _end_waiting(error)
            self._collect_last(error, FAILED)
        else:
            self._reach_loop()
        with self._changed:
            if error is None:
                self._changed.wait_for(lambda: self._collected, _PATIENCE)
            incident = self._unseen() if error is None else self._meant_by(error)
            if incident is None:
                return ""
            incident.records = tuple(map(self._with_told, incident.records))
            if error is None:
                self._keep_to_unseen(incident)
            incident.outcome = FAILED
            self._write(incident)
            verdict = incident.verdict()
            text = render(incident, verdict)
        self._last_words.report(incident, verdict, text)
        return text

    def file_of(self, error: BaseException) -> Path | None:
        """Return the file of the failure that ``error`` is about, once `report` has written it. Any thread."""
        with self._changed:
            incident = self._meant_by(error)
            return None if incident is None else files.path_of(self._run_directory, incident.number)

    def on_its_way(self, error: BaseException) -> None:
        """An error leaves the block of a mesh: the script may end by it. A thread of the script."""
        self._last_words.begin(error)

    def _with_told(self, record: FailureRecord) -> FailureRecord:
        has_ended = record.kind in ("exit", "signal")
        what = (record.mesh_id, record.rank, record.pid) if has_ended else record.id
        told = self._services.when_told(what) if what else 0
        return replace(record, told=told) if told else record

    def _unseen(self) -> Incident | None:
        """Return the latest incident with a failure that no call has raised. Under the lock."""
        unseen = set(self._services.unseen) - {""}  # failures without a record, or with a record without an id
        found = (each for each in reversed(self._incidents) if any(record.id in unseen for record in each.records))
        return self._whole(next(found, None))

    def _keep_to_unseen(self, incident: Incident) -> None:
        """The report is about what no call has raised: what the script was told of is not the root of that."""
        unseen = set(self._services.unseen)
        incident.since = time.monotonic_ns()
        incident.about = tuple(
            Reference(record.id, record.mesh_id, record.rank)
            for record in incident.records
            if record.id in unseen and record.waited_for
        )

    def tell_launcher(self, error: BaseException) -> None:
        """The script ends by an error of its own. A thread of the script."""
        self._last_words.error(error)

    def find(self, failure: str, mesh_id: str, rank: int) -> FailureRecord | None:
        """Return the record of a failure, after waiting for it. Any thread but the loop's."""
        wanted = Reference(failure, mesh_id, rank)
        with self._changed:
            self._changed.wait_for(lambda: self._is_known(wanted), _PATIENCE)
            incident = self._incident_of(wanted)
            return _find(wanted, incident) if incident is not None else None


def _of_this_process(mesh: str, rank: int) -> FailureRecord:
    return FailureRecord(mesh=mesh, rank=rank, host=os.uname().nodename, pid=os.getpid())


def _end_waiting(error: BaseException) -> None:
    """The script ends by ``error``: end the calls that have timed out, and correct the error's text about them."""
    for silence in silences(error):
        silence.over = True


def _find(wanted: Reference, incident: Incident) -> FailureRecord | None:
    for record in reversed(incident.records):
        here = record.mesh_id == wanted.mesh_id and (record.rank == wanted.rank or wanted.rank in record.ranks)
        if here and (record.id == wanted.failure if wanted.failure else True):
            return record
    return None


def _mesh_then(mesh: MeshFacts) -> IncidentMesh:
    alive = () if mesh.stopping else mesh.alive
    return IncidentMesh(mesh.mesh_id, mesh.name, dict(mesh.shape.extent), mesh.started, alive)


def load(services: RootServices) -> None:
    """Collect failures from now on: called once, by the first failure."""
    failures = Failures(services, services.run_directory)
    services.tables["failure"] = failures
    services.on_report(Recorded, failures.record)
    services.rank_lost.append(failures.lost)
    recorder = Recorder(_of_this_process("this_proc", 0), failures.own)
    # The hooks belong to this process, which may make another root.
    services.closing += [failures.finish, hooks.add(hooks.raised, recorder.raised)]
