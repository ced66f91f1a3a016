"""The output of faulthandler as records (`meshrt.inspect.records`): for ranks that do not answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from meshrt.inspect.records import Record, StackFrame
from meshrt.inspect.visibility import cut, debugger_index, is_hidden_file, is_plumbing_file
from meshrt.program.words import STOPPED

__all__ = ["SOURCE", "FaultThread", "parse", "records_of"]

#: The source of such a record.
SOURCE = "faulthandler: the GIL is held in C"

_THREAD = re.compile(
    r"(?:Current thread|Thread) (?P<ident>0x[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)')


@dataclass(frozen=True, slots=True)
class FaultThread:
    """One thread: frames are (file, line, function), outermost first."""

    ident: str
    name: str
    frames: list[tuple[str, int, str]]


def parse(text: str) -> list[FaultThread]:
    """Return the threads of the first dump in ``text``; lines of other forms are ignored."""
    found: dict[str, FaultThread] = {}
    for line in text.splitlines():
        begins, frame = _THREAD.fullmatch(line), _FRAME.fullmatch(line)
        if begins is not None:
            if begins["ident"] in found:
                break  # a second dump
            thread = found[begins["ident"]] = FaultThread(begins["ident"], begins["name"] or "", [])
        elif frame is not None and found:
            number = frame["line"]
            thread.frames.insert(0, (frame["file"], int(number) if number.isdigit() else 0, frame["function"]))
    return list(found.values())


def records_of(text: str, *, verbose: bool = False, actors: Mapping[int, str] = MappingProxyType({})) -> list[Record]:
    """Return records of the threads that are in user code, those of actors first.

    The main thread, which faulthandler writes last, is the first actor's. The name of that actor is not known here.

    Args:
        actors: The names of further actors, by the ident of their thread.
    """
    threads = parse(text)
    records = []
    for index, thread in enumerate(threads):
        main = index == len(threads) - 1
        frames = thread.frames
        files = [file for file, _, _ in frames]
        stop = debugger_index(files)
        frames, files = frames[:stop], files[:stop]
        shown = frames if verbose else cut(frames, files)
        if any(not is_plumbing_file(file) for file, _, _ in shown):
            actor = actors.get(int(thread.ident, 16), "")
            records.append(
                Record(
                    thread.name or ("MainThread" if main else f"meshrt-{actor}" if actor else "without a name"),
                    "actor" if main or actor else "thread",
                    actor,
                    endpoint="",
                    state=STOPPED if stop is not None else "busy",
                    frames=[StackFrame(file, line, function, is_hidden_file(file)) for file, line, function in shown],
                    source=SOURCE,
                )
            )
    records.sort(key=lambda record: record.kind != "actor")
    return records
