"""Run by tests: the engine in a process of its own, started and stopped several times; says what is not as before."""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psutil

from meshrt.debug.dap.engine.engine import Engine
from meshrt.debug.dap.engine.users_traces import trace_functions
from meshrt.debug.dap.router.greeting import CAPABILITIES
from meshrt.debug.dap.wire import Message, MessageDecoder, encode
from meshrt.transport.threads import RuntimeThread
from tests.support.markers import marked_line
from tests.support.waiting import holds_within

__all__ = ["Talk", "main"]

ROUNDS = 3


class Talk:
    """What an IDE says to the engine, and hears."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._decoder = MessageDecoder()
        self._heard: list[Message] = []
        self._seq = 0

    def ask(self, command: str, **arguments: object) -> Message:
        """Put a request; return the body of its answer."""
        self._seq += 1
        number = self._seq
        self._sock.sendall(encode({"seq": number, "type": "request", "command": command, "arguments": arguments}))
        answer = self._next(lambda message: message.get("request_seq") == number)
        assert answer["success"], answer
        body: Message = answer.get("body") or {}
        return body

    def event(self, name: str) -> Message:
        """Return the body of the next event of that name."""
        body: Message = self._next(lambda message: message.get("event") == name).get("body") or {}
        return body

    def _next(self, fits: object) -> Message:
        assert callable(fits)
        while True:
            for message in self._heard:
                if fits(message):
                    self._heard.remove(message)
                    return message
            data = self._sock.recv(1 << 16)
            assert data, "the engine has ended"
            self._heard += self._decoder.receive_data(data)


def _work(going: list[bool]) -> None:
    """A loop that calls nothing; an IDE has a breakpoint in it."""
    turns = 0
    while going:
        turns += 1  # @turn


def _traced(going: list[bool], begun: threading.Event, kept: list[bool]) -> None:
    """A loop on a thread that user code traces, and profiles; says whether what it had set is there at the end."""

    def users(frame: FrameType, event: str, arg: object) -> Any:
        return users

    def profile(frame: FrameType, event: str, arg: object) -> None:
        pass

    frame = sys._getframe()
    sys.settrace(users)
    sys.setprofile(profile)
    frame.f_trace = users
    begun.set()
    while going:
        pass
    begun.is_set()  # a call, with which it notices at the latest
    kept += [sys.gettrace() is users, frame.f_trace is users, sys.getprofile() is profile]


def _round() -> None:
    going, begun, kept = [True], threading.Event(), list[bool]()
    worker = threading.Thread(target=_work, args=(going,), name="work")
    traced = threading.Thread(target=_traced, args=(going, begun, kept), name="traced")
    worker.start()
    traced.start()
    assert begun.wait(60)
    failures: list[BaseException] = []

    def attach() -> None:
        try:
            _attach()
        except BaseException as error:
            failures.append(error)

    ide = RuntimeThread(target=attach)
    ide.start()
    ide.join(60)
    # Each turn of a loop that runs on would pay for a trace function, or for being watched.
    left_alone = holds_within(10, lambda: worker.ident not in trace_functions() and not _watched(_work.__code__))
    going.clear()
    for thread in (worker, traced):
        thread.join(60)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in (ide, worker, traced))
    assert left_alone, "the engine still looks at a thread"
    assert kept == [True] * 3, f"the user's trace function, the local one, the profile function are there: {kept}"


def _watched(code: CodeType) -> int:
    """Events of ``sys.monitoring`` that the tool for debuggers has left in a code object."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return 0
    monitoring.use_tool_id(monitoring.DEBUGGER_ID, "test")
    try:
        return int(monitoring.get_local_events(monitoring.DEBUGGER_ID, code))
    finally:
        monitoring.free_tool_id(monitoring.DEBUGGER_ID)


def _attach() -> None:
    engine = Engine()
    talk = Talk(engine.start())
    said = talk.ask("initialize", adapterID="debugpy", clientID="vscode")
    for key, value in CAPABILITIES.items():
        assert said.get(key) == value, f"{key}: the engine says {said.get(key)}, the router {value}"
    more = {key for key, value in said.items() if value is True and key.startswith("support")} - set(CAPABILITIES)
    # To end a rank is its program's business.
    assert more == {"supportTerminateDebuggee", "supportsTerminateRequest"}, more
    talk.ask("attach", justMyCode=True, redirectOutput=True)
    talk.event("initialized")
    points = [{"line": marked_line(__file__, "turn"), "condition": "turns < 0"}]
    (point,) = talk.ask("setBreakpoints", source={"path": __file__}, breakpoints=points)["breakpoints"]
    assert point["verified"], point
    talk.ask("configurationDone")
    threads = {thread["name"]: thread["id"] for thread in talk.ask("threads")["threads"]}
    assert set(threads) == {"MainThread", "work", "traced"}, threads
    # A loop that runs already, on a thread that nobody has prepared.
    talk.ask("pause", threadId=threads["work"])
    stopped = talk.event("stopped")
    stack = talk.ask("stackTrace", threadId=threads["work"])["stackFrames"]
    assert stopped["reason"] == "pause" and stack[0]["name"].endswith("_work"), (stopped, stack)
    listening = [each for each in psutil.Process().net_connections("all") if each.status == psutil.CONN_LISTEN]
    assert not listening, listening
    talk.ask("disconnect")
    engine.stop()


def _held() -> dict[str, object]:
    """What a process has that an engine may leave behind."""
    return {
        "hook": sys.breakpointhook,
        "streams": [sys.stdout, sys.stderr],
        "trace": sys.gettrace(),
        "threads trace": threading.gettrace(),
        "frames traced": [str(frame) for frame in _frames() if frame.f_trace is not None],
        "environment": dict(os.environ),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "called at the end": atexit._ncallbacks(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
    }


def _frames() -> list[FrameType]:
    found: list[FrameType] = []
    for frame in sys._current_frames().values():
        each: FrameType | None = frame
        while each is not None:
            found.append(each)
            each = each.f_back
    return found


def main() -> None:
    """Say as JSON what is different after each round."""
    before = _held()
    changes = []
    for number in range(ROUNDS):
        _round()
        holds_within(10, lambda: _held() == before)
        after = _held()
        changes += [
            f"round {number}: {key} {before[key]} -> {after[key]}" for key in after if after[key] != before[key]
        ]
    print(json.dumps(changes))


if __name__ == "__main__":
    main()
