"""Which threads of an engine are stopped, as its messages tell."""

from __future__ import annotations

from meshrt.debug.dap.stops import Stops
from meshrt.debug.dap.wire import Message, event, failure, response


def request(number: int, command: str) -> Message:
    return {"type": "request", "seq": number, "command": command}


def stopped(thread: int) -> Message:
    return event("stopped", threadId=thread, reason="breakpoint")


def test_threads_are_stopped_until_they_resume() -> None:
    stops = Stops()
    assert not stops
    for thread in (2, 1, 3):
        stops.said(stopped(thread))
    assert list(stops) == [2, 1, 3] and stops.events() == [stopped(2), stopped(1), stopped(3)]
    stops.said(event("continued", threadId=1, allThreadsContinued=False))
    assert list(stops) == [2, 3]
    stops.said(event("continued", threadId=2))
    assert not stops


def test_an_answer_resumes_what_was_stopped_when_it_was_asked_for() -> None:
    stops = Stops()
    stops.said(stopped(1))
    # Neither another request nor a refusal lets anything go on.
    stops.asked(request(1, "threads"))
    stops.said(response(request(1, "threads")))
    stops.asked(request(2, "continue"))
    stops.said(failure(request(2, "continue"), "no"))
    assert list(stops) == [1]
    stops.asked(request(3, "next"))
    stops.said(response(request(3, "next")))
    assert not stops

    # The next stop may be told before the answer to what has led there.
    stops.said(stopped(1))
    stops.asked(request(4, "next"))
    stops.said(stopped(1))
    stops.said(response(request(4, "next")))
    assert list(stops) == [1]
