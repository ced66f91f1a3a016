"""``meshrt timeline``: what endpoints did when, on every rank, as a file for Perfetto."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

from meshrt.commandline.command import Arguments
from meshrt.errors import UsageError
from meshrt.hooks.facts import Body
from meshrt.inspect.programs import choose, command_of, named
from meshrt.program.groups import by_key
from meshrt.selection import counted
from meshrt.show.records import refuse_to_overwrite
from meshrt.show.status import ExitCode, complain
from meshrt.show.streams import write_out
from meshrt.timeline.collected import Collected
from meshrt.timeline.session import MOST, Session
from meshrt.timeline.trace import SCHEMA, pieces
from meshrt.transport.tools import Program, programs
from meshrt.transport.writing import check_place, write_atomic

__all__ = ["show"]

#: Seconds between two rounds of fetching.
_ROUND = 0.5
_NAMED = 5


def show(given: Arguments) -> int:
    """Run ``meshrt timeline``. Returns the exit code."""
    # A user who ends the command wants the spans recorded until then: `timeout` ends it so.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = given["out"]
    _refuse_program(out, given["run"])
    check_place(out)
    if not given["force"]:
        refuse_to_overwrite(out, SCHEMA)
    program = choose(given["run"], how="meshrt timeline OUT.json RUN")
    return _record(program, out, given["seconds"], given["ranks"])


def _refuse_program(out: Path, run: str) -> None:
    """Raise UsageError if the place of the file has a program: the two were typed in the other order."""
    if not out.exists() and named(str(out), programs()) is not None:
        raise UsageError(f"{out} is a program; the file comes first: meshrt timeline {run or 'OUT.json'} {out}")


def _record(program: Program, out: Path, seconds: float, ranks: str) -> int:
    session = Session(program)
    begun = time.monotonic()
    how = ""
    try:
        count = session.begin(ranks)
        try:
            what = f"{counted(count)} of pid {program.pid}, {command_of(program)}"
            complain(f"meshrt timeline: recording {what}, for {seconds:g} s; Ctrl-C ends the recording")
            how = _fetch_until(session, begun + seconds)  # Ctrl-C may come from the line above on
        except KeyboardInterrupt:
            how = "until Ctrl-C"
        took = time.monotonic() - begun
        if not session.closed.is_set():
            session.end()
            more = session.fetch(everybody=True)
            while more and session.collected.spans < MOST:
                more = session.fetch()
    except (ConnectionError, TimeoutError) as error:
        if not session.collected.ranks():
            raise
        end = "stopped answering" if isinstance(error, TimeoutError) else "ended"
        took, how = time.monotonic() - begun, f"until the program {end}"
    finally:
        session.close()
    collected = session.collected
    try:
        write_atomic(out, pieces(collected, _facts(program, collected, took)), durable=True)
    except OSError as error:
        raise OSError(f"{out} cannot be written: {error.strerror}") from error
    write_out(sys.stdout, _summary(out, collected, took, how) + "\n")
    return ExitCode.OK


def _fetch_until(session: Session, deadline: float) -> str:
    """Fetch until the end of the recording; returns why it ended early, or ""."""
    while not session.closed.is_set():
        more = session.fetch()
        if session.collected.spans >= MOST:
            return f"until {MOST} spans were recorded"
        left = deadline - time.monotonic()
        if left <= 0:
            return ""
        if not more:
            session.closed.wait(min(_ROUND, left))
    return "until the program ended"


def _facts(program: Program, collected: Collected, took: float) -> Body:
    return {
        "program": program.run_id, "pid": program.pid, "argv": program.argv, "seconds": round(took, 3),
        "dropped": {track.name: track.dropped for track in collected.tracks.values() if track.dropped},
        "without": dict(collected.without.values()),
    }  # fmt: skip


def _summary(out: Path, collected: Collected, took: float, how: str) -> str:
    tracks = collected.ranks()
    cut = sum(1 for track in tracks for span in (*track.spans, *track.open) if span.cut)
    spans = sum(len(track.spans) + len(track.open) for track in tracks)
    lines = [
        f"{out}: {counted(spans, 'span')} of {counted(len(tracks))} in {took:.1f} s{f', {how}' if how else ''}"
        + (f"; {cut} of them cut: they began before, or had not ended" if cut else "")
    ]
    dropped = sum(track.dropped for track in tracks)
    if dropped:
        names = [track.name for track in tracks if track.dropped]
        lines.append(f"  dropped spans: {dropped}, as they were recorded faster than fetched: {_few(names)}")
    reasons = by_key((why, name) for name, why in collected.without.values())
    lines += [f"  not recorded, or not to the end: {_few(names)}: {why}" for why, names in reasons.items()]
    if not spans:
        lines.append("  no endpoint ran during the recording")
    return "\n".join(lines)


def _few(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
