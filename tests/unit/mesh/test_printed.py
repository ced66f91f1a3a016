"""Output of ranks of other machines: shown, written to the files of the run directory, and confirmed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from meshrt.host.output import RECORD_MARK
from meshrt.mesh.printed import PrintedElsewhere
from meshrt.transport.directories import log_path
from meshrt.wire.tree import Kept, Output, Printed
from tests.support.waiting import wait_until


class Agent:
    """Takes confirmations."""

    host = "n2"

    def __init__(self) -> None:
        self.confirmed: list[Kept] = []
        self.send = self.confirmed.append


class Bench:
    """An agent ``n2`` with a mesh ``m`` of two ranks."""

    def __init__(self, directory: Path, limit: int = 1 << 30) -> None:
        self.directory = directory
        self.shown: list[Output] = []
        self.lines: list[str] = []
        record = SimpleNamespace(name="train", place=lambda rank: f"rank {rank}")
        registry: Any = SimpleNamespace(meshes={"m": record})
        self.kept: list[str] = []
        reports: Any = SimpleNamespace(output=self._output)
        self.agent: Any = Agent()
        self.confirmed = self.agent.confirmed
        self.printed = PrintedElsewhere(directory, limit, registry, reports, self.lines.append)

    def _output(self, output: Output, kept: list[str]) -> None:
        self.shown.append(output)
        self.kept += kept

    def text(self, rank: int = 0) -> str:
        return log_path(self.directory, "train", "m", rank).read_text()

    def take(self, *messages: Printed) -> None:
        for message in messages:
            self.printed.printed(self.agent, message)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    made = Bench(tmp_path)
    yield made
    made.printed.end()


def test_lines_are_shown_and_kept_and_that_is_confirmed(bench: Bench) -> None:
    messages = [Printed("m", 0, False, b"\x1eeval\x1eone\ntwo\n"), Printed("m", 1, True, b"three\n", done=True)]
    bench.take(*messages)
    wait_until(lambda: sum(kept.cost for kept in bench.confirmed) == sum(each.cost for each in messages), 20)
    assert (bench.text(0), bench.text(1)) == ("one\ntwo\n", "three\n")
    assert bench.shown == [
        Output("m", 0, False, [("eval", "one"), ("", "two")]),
        Output("m", 1, True, [("", "three")]),
    ]


def test_what_is_missing_is_told_in_the_file_and_to_the_user(bench: Bench) -> None:
    bench.take(Printed("m", 0, False, b"one\n"), Printed("m", 0, False, b"two\n", left_out=5))
    bench.printed.end()
    why = "dropped: the output was faster than the connection to n2"
    assert bench.text().splitlines() == ["one", f"meshrt: 5 lines of output {why}", "two"]
    assert bench.lines == [f"5 lines of output of train rank 0 {why}"]


def test_a_rank_that_is_started_again_goes_on_in_its_file(bench: Bench) -> None:
    bench.take(Printed("m", 0, False, b"one\n", done=True), Printed("m", 0, False, b"two\n"))
    bench.printed.gone(bench.agent)
    bench.take(Printed("m", 0, False, b"three\n"))
    bench.printed.end()
    assert bench.text() == "one\ntwo\nthree\n"


def test_of_a_mesh_that_is_forgotten_nothing_is_kept(bench: Bench, tmp_path: Path) -> None:
    bench.take(message := Printed("other", 0, False, b"one\n"))
    assert bench.confirmed == [Kept(message.cost)] and not list(tmp_path.iterdir())


def test_the_files_have_the_limit_of_those_of_a_local_agent(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit=1 << 20)
    for number in range(200):
        bench.take(Printed("m", number % 2, False, b"%04d %s\n" % (number, b"x" * 20_000)))
    bench.printed.end()
    kept = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert kept <= 1 << 20 and "0199" in bench.text(1)
    assert any("MESHRT_LOGS_LIMIT" in line for line in bench.lines)


def test_the_line_of_a_log_record_is_kept_and_not_shown(bench: Bench) -> None:
    bench.take(Printed("m", 0, True, RECORD_MARK + b"ERROR:x:y\nprinted\n"))
    wait_until(lambda: bench.confirmed, 20)
    assert bench.text(0) == "ERROR:x:y\nprinted\n" and bench.kept == ["ERROR:x:y", "printed"]
    assert bench.shown == [Output("m", 0, True, [("", "printed")])]
