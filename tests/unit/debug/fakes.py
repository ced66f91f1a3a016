"""Stand-ins for the runtime: a rank whose endpoint runs on a thread of the test."""

from __future__ import annotations

import asyncio
import inspect
import os
import queue
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import meshrt
from meshrt.debug.rank.debugger import RankDebugger
from meshrt.debug.rank_operations import Input
from meshrt.hooks.facts import ActorState, Body, EndpointCall, Wait, Workload
from meshrt.hooks.operations import Answers, Operation, Report, Served, body_of, server
from meshrt.transport.writing import write_atomic

WAIT = 10.0

#: The runtime's part of the stack: a function whose file lies in the package, so that it is hidden as the real one is.
_RUNNER = os.path.join(os.path.dirname(meshrt.__file__), "actor", "fake_runner.py")
_namespace: dict[str, Any] = {}
exec(compile("def call(function, args):\n    return function(*args)\n", _RUNNER, "exec"), _namespace)
call_endpoint = _namespace["call"]


class FakeRankServices:
    """RankServices on a queue."""

    def __init__(self, rank: int = 0, sources: dict[str, str] | None = None) -> None:
        self.mesh_id = "m1"
        self.mesh_name = "mesh"
        self.rank = rank
        self.pid = 100 + rank
        self.host_name = "node1"
        self.run_directory = ""
        self.elsewhere = False
        self.operations: dict[str, Callable[[Body], Body | None]] = {}
        self.events: queue.Queue[tuple[str, Body]] = queue.Queue()
        self.holds = 0
        self.flushed = 0
        self.sources = sources or {}
        self.calls: dict[int, EndpointCall] = {}
        self.instances: dict[str, Any] = {}
        self.signals_sent = 0
        self.signals_handled = self.signalled_ns = 0
        self.in_signal = False

    def actors(self) -> list[ActorState]:
        return [
            ActorState(call.actor, ident, call, None, instance=found, cls=None if found is None else type(found))
            for ident, call in list(self.calls.items())
            for found in [self.instances.get(call.actor)]
        ]

    def keep_file(self, name: str, text: str, *, durable: bool = False) -> Path:
        path = Path(self.run_directory) / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_atomic(path, text, durable=durable)
        return path

    def workload(self) -> list[Workload]:
        return []

    def wait_of(self, waiter: object) -> Wait | None:
        return None

    def waits_since(self, thread: int) -> float | None:
        return None

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        function()

    def signal_main(self) -> None:
        self.signals_sent += 1

    def interject(self, function: Callable[[Any], None]) -> bool:
        return False

    def current_call(self) -> EndpointCall | None:
        return self.calls.get(threading.get_ident())

    def current_calls(self) -> list[EndpointCall]:
        return list(self.calls.values())

    def serve(self, operation: Served[Any, Any], handler: Callable[[Any], Any]) -> None:
        self.operations[operation.name()] = server(operation, handler)

    def serve_later(self, operation: Served[Any, Any], handler: Callable[[Any, Answers[Any]], None]) -> None:
        pass  # no test asks

    def report(self, report: Report) -> None:
        body = msgspec.to_builtins(body_of(report), builtin_types=(bytes, bytearray, memoryview))
        self.events.put((report.name(), body))

    def ask(self, operation: Operation[Any], timeout: float) -> Any:
        assert operation.name() == "debug.source"
        return operation.read_answer({"text": self.sources.get(body_of(operation)["filename"])})

    def held(self) -> bool:
        return self.holds > 0

    def typed(self, begins: bool) -> None:
        pass

    def set_held(self, held: bool) -> None:
        self.holds += 1 if held else -1

    def flush_output(self) -> None:
        self.flushed += 1


class FakeRank:
    """Runs functions as endpoints, and plays the person at the prompt."""

    def __init__(self, **facts: Any) -> None:
        self.services = FakeRankServices(**facts)
        self.debugger = RankDebugger(self.services)
        self.result: Any = None
        self.error: BaseException | None = None
        self.traced_after: Any = "not run"
        self._hook = sys.breakpointhook
        sys.breakpointhook = self.debugger.breakpointhook
        self._threads: list[threading.Thread] = []
        self._seqs: dict[tuple[str, str], int] = {}

    def close(self) -> None:
        self.debugger.proc_closing()
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        sys.breakpointhook = self._hook

    def start(self, function: Callable[..., Any], *args: Any, actor: str = "debugee") -> None:
        """Run ``function`` as an endpoint of ``actor`` on a thread of its own."""

        def run() -> None:
            call = EndpointCall("m1", actor, self.services.rank, function.__name__, [["gpus"], 0, [4], [1]])
            self.services.calls[threading.get_ident()] = call
            try:
                result = call_endpoint(function, args)
                self.result = asyncio.run(result) if inspect.iscoroutine(result) else result
            except BaseException as error:
                self.debugger.endpoint_error(call, error)
                self.error = error
            finally:
                self.debugger.endpoint_exit(call)
                self.traced_after = sys.gettrace()
                del self.services.calls[threading.get_ident()]

        target = types.FunctionType(run.__code__.replace(co_filename=_RUNNER), globals(), closure=run.__closure__)
        thread = threading.Thread(target=target, name="actor")
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        self._threads[-1].join(WAIT)
        assert not self._threads[-1].is_alive()

    def event(self, name: str) -> Body:
        """Return the next event, which must be ``name`` (pieces of output are passed over)."""
        printed = ""
        while True:
            event, body = self.services.events.get(timeout=WAIT)
            if event != "debug.output":
                assert event == name, (event, body)
                return {**body, "text": printed + body.get("text", "")}
            printed += body["text"]

    def stopped(self) -> Body:
        """Wait for the next prompt."""
        body = self.event("debug.stopped")
        self._seqs[body["actor"], body["thread"]] = body["seq"]
        return body

    def send(self, line: str | None, actor: str = "debugee", thread: str = "", **more: Any) -> bool:
        """Type ``line`` at the last prompt of ``thread``."""
        return self.debugger.input(Input(actor, thread, self._seqs[actor, thread], line, **more)).accepted

    def ask(self, line: str, **more: Any) -> str:
        """Type a line that answers without resuming; return the answer."""
        assert self.send(line, **more)
        return str(self.stopped()["text"])

    def step(self, line: str, **more: Any) -> Body:
        """Type a line that resumes; return the next stop."""
        assert self.send(line, **more)
        assert self.event("debug.resumed")["how"] in ("step", "continue")
        return self.stopped()

    def end(self, line: str = "c", how: str = "continue") -> None:
        """Type a line that lets the endpoint run to its end."""
        assert self.send(line)
        assert self.event("debug.resumed")["how"] == how
        self.event("debug.ended")
        self.join()
