"""meshrt's debugger: its own prompt and its own connection, at a terminal that shows nothing."""

import time
from collections.abc import Mapping
from typing import Any

from bench.debugger.protocol import ACTOR
from bench.scenarios import expect
from meshrt.debug.prompt.client import Client
from meshrt.debug.prompt.repl import Repl
from meshrt.transport import tools

__all__ = ["PATIENCE", "MeshrtDesk"]

PATIENCE = 60.0


class Silent:
    """A terminal at which everything is shown, and nobody looks."""

    interactive = True

    def read(self, prompt: str) -> str:
        raise EOFError

    def write(self, text: str) -> None:
        pass

    page = write

    def notice(self, text: str) -> None:
        pass

    def wake(self) -> None:
        pass

    def forget_typed(self) -> bool:
        return False

    def close(self) -> None:
        pass


class MeshrtDesk:
    """The prompt of ``python -m meshrt.debug``, connected to a program by its process id."""

    def __init__(self, pid: int) -> None:
        program = find(pid)
        self._client = Client(lambda on_event, on_close: tools.connect(program, on_event, on_close), person=True)
        self._repl = Repl(self._client, Silent(), record=self._record)
        self._last: Mapping[str, Any] = {}

    def _record(self, record: Mapping[str, Any]) -> None:
        self._last = record

    def run_line(self, line: str) -> Mapping[str, Any]:
        """Type a line; return what it came to.

        Raises:
            RuntimeError: It could not be run.
        """
        if not self._repl.execute(line):
            raise RuntimeError(f"{line!r}: {self._last}")
        return self._last

    def wait(self, count: int) -> None:
        expect(len(self.run_line(f"wait {ACTOR} {PATIENCE:g}")["stopped"]), count, "stopped ranks")

    def show(self) -> None:
        self.run_line("list")

    def attach(self, rank: int) -> None:
        self.run_line(f"attach {ACTOR} {rank}")

    def detach(self) -> None:
        self.run_line("detach")

    def command(self, line: str) -> None:
        self.run_line(line)

    def cast(self, line: str, count: int) -> None:
        # An answer is a rank's next stop: all have moved when all have answered.
        self._all(f"cast {ACTOR} ranks(0:{count}) {line}", "answered", count)

    def where(self, count: int, place: str) -> None:
        """Show the stacks of all ranks; all must be told, and lead to the function ``place``."""
        (mesh,) = self.run_line("where")["meshes"]
        found = mesh["answered"]["count"], ranks_in(mesh["trees"], place)
        expect(found, (count, count), f"ranks that answer, ranks in {place}")

    def interrupt(self, count: int) -> None:
        """Stop all ranks where they are."""
        self._all(f"interrupt {ACTOR}", "answered", count)

    def go_on(self) -> None:
        self.run_line("continue")

    def close(self) -> None:
        self._client.mute()
        self._client.close()

    def _all(self, line: str, kind: str, count: int) -> None:
        answers = self.run_line(line)["answers"]
        expect(sum(len(each["ranks"]) for each in answers if each["kind"] == kind), count, f"ranks that have {kind}")


def ranks_in(nodes: list[dict[str, Any]], function: str) -> int:
    """Return how many ranks have a function in their stacks."""

    def here(node: dict[str, Any]) -> int:
        inside = any(frame["function"] == function for frame in node["frames"])
        return int(node["count"]) if inside else ranks_in(node["children"], function)

    return sum(map(here, nodes))


def find(pid: int) -> tools.Program:
    """Return a program that runs, or is just starting."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for program in tools.programs():
            if program.pid == pid:
                return program
        time.sleep(0.05)
    raise TimeoutError(f"process {pid} has no mesh")
