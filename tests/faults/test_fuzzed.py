"""Changed messages to processes that run: whoever sends them may be refused, or lost; the others are served."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import pytest

import meshrt
from meshrt import Actor, LinkLost, ProcessDied, current_rank, endpoint, proc_mesh
from meshrt.errors import ProtocolError
from meshrt.transport.tools import own_program
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_TOOL, ClientHandshake
from meshrt.wire.tree import FROM_RANK
from tests.fuzz.mutating import Mutator, packed
from tests.fuzz.wire import CONTROL_EXAMPLES
from tests.support.control import fields_of, raw_frame

LONG = 60
#: Of terminals; those that a rank would stop at, or wait for a person, are none of them.
OPERATIONS = (
    "debug.hello", "inspect.list", "inspect.names", "inspect.status", "debug.attach", "debug.detach", "debug.send",
    "debug.complete", "debug.cast", "debug.continue", "debug.leave", "debug.print", "inspect.where", "memory.look",
    "top.look", "debug.logs", "inspect.printing", "debug.break", "debug.clear", "debug.breaks", "debug.postmortem",
    "timeline.begin", "timeline.take", "timeline.end", "timeline.drop", "dap.which", "dap.data", "dap.close", "no.such",
)  # fmt: skip
BODIES: list[dict[str, Any]] = [
    {"actor": "speaker", "ranks": "ranks(n=0)", "lines": 3, "expression": "1 + 1", "mesh": "m1", "rank": 0},
    {"actor": "speaker", "ranks": "", "file": "a.py", "line": 3, "condition": "", "number": 1, "input": "p 1\n"},
    {"channel": 1, "mesh": "m1", "rank": 0, "data": b"Content-Length: 2\r\n\r\n{}", "milliseconds": 10, "seconds": 0.1},
]


class Speaker(Actor):
    """Says on the control link of its rank whatever it is given."""

    @endpoint
    def say(self, messages: list[bytes]) -> int:
        with control_socket() as link, contextlib.suppress(OSError):
            for data in messages:
                link.sendall(data)
        return len(messages)

    @endpoint
    def parent(self) -> int:
        return os.getppid()

    @endpoint
    def rank(self) -> int:
        return current_rank().rank


def control_socket() -> socket.socket:
    """Return the link to the agent: it is a copy, which its user may let go of."""
    import gc

    from meshrt.actor.control import ControlThread

    thread = next(each for each in gc.get_objects() if isinstance(each, ControlThread) and each._link is not None)
    assert thread._link is not None
    return socket.socket(fileno=os.dup(thread._link.fileno()))


def operations() -> list[bytes]:
    return [
        packed({"t": "op", "id": number, "op": name, "body": body})
        for number, (name, body) in enumerate((name, body) for name in OPERATIONS for body in BODIES)
    ]


class Terminal:
    """A terminal that has proved the token and says what it likes."""

    def __init__(self) -> None:
        program = own_program()
        assert program is not None
        token = bytes.fromhex((program.directory / "tools.token").read_text())
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(LONG)
        self.sock.connect(str(program.directory / "tools"))
        handshake = ClientHandshake(token, ROLE_TOOL, "tool")
        self.sock.sendall(handshake.hello())
        while not handshake.done:
            self.sock.sendall(handshake.receive_data(self.sock.recv(4096)))
        self.decoder = control_decoder()

    def ask(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request; None: the root has hung up."""
        try:
            self.sock.sendall(raw_frame(message))
            while data := self.sock.recv(1 << 16):
                for frame in self.decoder.receive_data(data):
                    answer: dict[str, Any] = fields_of(frame.payload)
                    if answer["t"] in ("ok", "no") and answer["id"] == message["id"]:
                        return answer
        except ConnectionError:
            pass
        return None


def test_whatever_a_terminal_asks_the_program_goes_on() -> None:
    """A request is answered, or the terminal is disconnected; another terminal, and the calls of the script, go on."""
    speakers = proc_mesh(n=2).spawn("speaker", Speaker).get(LONG)
    mutator = Mutator(1, operations(), "msgpack", [b"speaker", b"ranks(0)", *(name.encode() for name in OPERATIONS)])
    terminal, hung_up = Terminal(), 0
    for number in range(300):
        message = _request(mutator.next(), number + 1)
        if terminal.ask(message) is None:
            terminal.sock.close()
            terminal, hung_up = Terminal(), hung_up + 1
        if not number % 50:
            assert speakers.rank.call().get(LONG).values() == [0, 1]
    terminal.sock.close()
    assert hung_up < 100
    other = Terminal()
    answer = other.ask({"t": "op", "id": 1, "op": "inspect.list", "body": {}})
    other.sock.close()
    assert answer is not None and answer["t"] == "ok"
    assert speakers.rank.call().get(LONG).values() == [0, 1]


def _request(data: bytes, number: int) -> dict[str, Any]:
    """Make a request of it that is one; what is none ends the connection at once."""
    try:
        message = fields_of(data)
    except Exception:  # msgpack has no common root for "these are not my bytes"
        message = {}
    if not isinstance(message, dict):
        message = {}
    name = message.get("op")
    return {**message, "t": "op", "id": number, "op": name if isinstance(name, str) else "inspect.list"}


#: What a rank tells its agent.
TOLD: list[dict[str, Any]] = [
    {"t": "hint", "text": "sys.exit(3)"},
    {"t": "later", "id": -1},
    {"t": "ok", "id": -1, "body": {"same": "x", "per": None}},
    {"t": "pong"},
    {"t": "ev", "ev": "held", "body": {"held": True}},
    {"t": "ev", "ev": "held", "body": {"held": False}},
    {"t": "ev", "ev": "cut", "body": {"calls": [["speaker", "say"]], "waiting": 0, "more": False}},
    {"t": "ev", "ev": "failure.record", "body": {"record": {"kind": "exception", "rank": 0}}},
    {"t": "op", "id": 1_000_000, "op": "mesh.watch", "body": {"mesh": "m1", "rank": 1}},
    {"t": "op", "id": 1_000_001, "op": "mesh.told", "body": {"mesh": "m1", "rank": 1, "pid": 1}},
]


def test_whatever_a_rank_tells_its_agent_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad message may end the rank that has sent it. The agent, the root and the other rank go on."""
    monkeypatch.setattr(meshrt, "unhandled_fault_hook", lambda _failure: None)  # a rank may end behind its last answer
    mutator = Mutator(2, [packed(message) for message in (*TOLD, *CONTROL_EXAMPLES)], "msgpack")
    speakers = proc_mesh(n=2).spawn("speaker", Speaker).get(LONG)
    agent = speakers.parent.call().get(LONG).values()
    assert agent[0] == agent[1]
    for number in range(40):
        messages = [mutator.next() for _ in range(60)]
        if number % 8:
            messages = list(filter(_is_message, messages))
        first = speakers.slice(n=0)
        error = first.say.call_one(list(map(_framed, messages))).exception(LONG)
        error = error or first.parent.call_one().exception(LONG)
        assert speakers.slice(n=1).parent.call_one().get(LONG) == agent[1]
        if error is not None:
            assert isinstance(error, ProcessDied | LinkLost), error
            speakers = proc_mesh(n=2).spawn("speaker", Speaker).get(LONG)
            assert speakers.parent.call().get(LONG).values() == agent, "another agent"
    terminal = Terminal()
    assert terminal.ask({"t": "op", "id": 1, "op": "inspect.list", "body": {}}) is not None
    terminal.sock.close()


def _is_message(data: bytes) -> bool:
    try:
        return FROM_RANK.decode(data) is not None
    except ProtocolError:
        return False


def _framed(data: bytes) -> bytes:
    header = packed(None)
    return (len(header) + len(data)).to_bytes(4, "big") + b"\x10" + len(header).to_bytes(4, "big") + header + data
