"""What stands in an engine, as its messages tell."""

from __future__ import annotations

from meshrt.debug.dap.standing import Standing
from meshrt.debug.dap.wire import Message, event, failure, response


def request(number: int, command: str) -> Message:
    return {"type": "request", "seq": number, "command": command}


def stopped(thread: int) -> Message:
    return event("stopped", threadId=thread, reason="breakpoint")


def test_threads_stand_until_they_go_on() -> None:
    standing = Standing()
    assert not standing
    for thread in (2, 1, 3):
        standing.said(stopped(thread))
    assert list(standing) == [2, 1, 3] and standing.events() == [stopped(2), stopped(1), stopped(3)]
    standing.said(event("continued", threadId=1, allThreadsContinued=False))
    assert list(standing) == [2, 3]
    standing.said(event("continued", threadId=2))
    assert not standing


def test_an_answer_lets_go_on_what_stood_when_it_was_asked_for() -> None:
    standing = Standing()
    standing.said(stopped(1))
    # Neither another request nor a refusal lets anything go on.
    standing.asked(request(1, "threads"))
    standing.said(response(request(1, "threads")))
    standing.asked(request(2, "continue"))
    standing.said(failure(request(2, "continue"), "no"))
    assert list(standing) == [1]
    standing.asked(request(3, "next"))
    standing.said(response(request(3, "next")))
    assert not standing

    # The next stop may be told before the answer to what has led there.
    standing.said(stopped(1))
    standing.asked(request(4, "next"))
    standing.said(stopped(1))
    standing.said(response(request(4, "next")))
    assert list(standing) == [1]
