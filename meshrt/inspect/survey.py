"""All running programs at once, each asked on a thread of its own: a silent program does not delay the others."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from meshrt.errors import MeshError
from meshrt.inspect.programs import stopped_by_signal
from meshrt.transport.directories import in_use
from meshrt.transport.tools import Program, ToolConnection, connect

__all__ = ["Found", "survey"]

A = TypeVar("A")

#: Seconds between two checks whether the silent programs were stopped by a signal.
_LOOK = 0.1


@dataclass
class Found(Generic[A]):
    """The result of asking one program.

    Attributes:
        answer: Its answer; None: it has not answered.
        why: Text: why it has not answered; "" if it has.
        refused: It has refused the request.
    """

    program: Program
    answer: A | None = None
    why: str = ""
    refused: bool = False


def survey(programs: Sequence[Program], ask: Callable[[ToolConnection], A], seconds: float) -> list[Found[A]]:
    """Ask every program. Returns one `Found` for each, in order, without those that have ended meanwhile.

    Args:
        ask: Makes the requests, on a thread of its own for each program. A MeshError from it counts as a refusal.
        seconds: Limit of the wait for silent programs. If only programs stopped by a signal are left, it ends at once.
    """
    changed = threading.Condition()
    answered: dict[str, Found[A]] = {}

    def run(program: Program) -> None:
        found = _asked(program, ask)
        with changed:
            answered[program.run_id] = found
            changed.notify_all()

    for program in programs:
        threading.Thread(target=run, args=(program,), daemon=True).start()
    deadline = time.monotonic() + seconds
    with changed:
        while waiting := [program for program in programs if program.run_id not in answered]:
            left = deadline - time.monotonic()
            if left <= 0 or all(map(stopped_by_signal, waiting)):
                break
            changed.wait(min(left, _LOOK))
        found = [answered.get(program.run_id) or Found(program, why=_silence(program, seconds)) for program in programs]
    return [each for each in found if not each.why or in_use(each.program.directory)]


def _asked(program: Program, ask: Callable[[ToolConnection], A]) -> Found[A]:
    try:
        with contextlib.closing(connect(program)) as connection:
            return Found(program, ask(connection))
    except MeshError as error:
        return Found(program, why=str(error), refused=True)
    except OSError as error:  # TimeoutError included
        return Found(program, why=f"does not answer: {error}")


def _silence(program: Program, seconds: float) -> str:
    if stopped_by_signal(program):
        return f"does not answer: stopped by a signal; kill -CONT {program.pid} resumes it"
    return f"does not answer: nothing within {seconds:g} s"
