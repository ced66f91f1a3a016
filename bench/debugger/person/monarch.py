"""Monarch's debugger: plain text over TCP, as its ``monarch debug`` has it."""

import socket
import time

from bench.debugger.person.acts import Scene, at_a_breakpoint
from bench.debugger.protocol import ACTOR
from bench.scenarios import Values

__all__ = ["ACTS", "MonarchDesk"]

PROMPT = b"monarch_dbg> "
PDB_PROMPT = b"(Pdb) "
PATIENCE = 60.0


class MonarchDesk:
    """A connection to the port of a program's debugger, which is open from the first breakpoint on."""

    def __init__(self, port: int) -> None:
        self._socket = connect(port)
        self._socket.settimeout(PATIENCE)
        self._stand: list[int] = []
        self._until(PROMPT)

    def wait(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(lines := self._lines()) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {len(lines)} of {count} ranks have stopped")
            time.sleep(0.1)
        self._stand = lines

    def show(self) -> None:
        self._send("list")
        self._until(PROMPT)

    def attach(self, rank: int) -> None:
        self._send(f"attach {ACTOR} {rank}")
        self._until(PDB_PROMPT)

    def detach(self) -> None:
        self._send("detach")
        self._until(PROMPT)

    def command(self, line: str) -> None:
        self._send(line)
        self._until(PDB_PROMPT)

    def cast(self, line: str, count: int) -> None:
        # The prompt is back when the ranks have got the line. Only the listing tells what they have made of it.
        self._send(f"cast {ACTOR} ranks(0:{count}) {line}")
        self._until(PROMPT)
        before = self._stand
        while any(old == new for old, new in zip(before, self._stand, strict=True)):
            self._stand = self._lines()

    def go_on(self) -> None:
        self._send("continue")
        self._until(PROMPT)

    def close(self) -> None:
        self._socket.close()

    def _lines(self) -> list[int]:
        """Return the line at which each rank stands, as the listing shows it."""
        self._send("list")
        rows = [row for row in self._until(PROMPT).decode().splitlines() if row.startswith(f"| {ACTOR} ")]
        return [int(row.split("|")[-2]) for row in rows]

    def _send(self, line: str) -> None:
        self._socket.sendall(line.encode() + b"\n")

    def _until(self, prompt: bytes) -> bytes:
        """Read until what was shown ends with a prompt, and nothing follows it."""
        shown = bytearray()
        while not shown.endswith(prompt):
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError(f"the debugger has gone; its last words: {shown.decode()[-500:]}")
            shown += data
        return bytes(shown)


def connect(port: int) -> socket.socket:
    """Connect to a port that will open soon."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("localhost", port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def stopped(scene: Scene) -> Values:
    """All ranks stand at their breakpoint."""
    desk = MonarchDesk(int(scene.address))
    desk.wait(scene.settings.ranks)
    values = at_a_breakpoint(desk, scene.settings)
    desk.go_on()
    desk.close()
    return values


ACTS = {"stopped": stopped}
