"""What is shown of ranks that live: their lines with who wrote them, their silence, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshrt.mesh.agent_reports import AgentReports
from meshrt.mesh.folding import RankLines, folded
from meshrt.mesh.live import LiveLogs
from meshrt.mesh.registry import Registry
from meshrt.mesh.shown import Shown, parse_shown
from meshrt.transport.driver import Driver
from meshrt.transport.dropping import DROPPABLE
from meshrt.wire.tree import Output, Pulse
from tests.unit.mesh.root_fakes import FakeAgent, record
from tests.unit.transport.fake_rank import SECRET, FakeTree


class Bench:
    """A mesh of two ranks, a terminal and the hooks of the services."""

    def __init__(self) -> None:
        self.driver = Driver(SECRET, FakeTree())
        self.registry = Registry()
        self.mesh = record(self.driver, FakeAgent())
        self.registry.add(self.mesh)
        self.rank_silent: list[Callable[[str, int, str], None]] = [lambda *told: self.told.append(told)]
        self.told: list[tuple[str, int, str]] = []
        self.lines_shown: list[RankLines] = []
        self.announced: list[str] = []
        me: Any = self
        self.live = LiveLogs(Shown())
        self.reports = AgentReports(self.registry, me, me, self.live)

    def lines(self, lines: RankLines) -> None:
        self.lines_shown.append(lines)

    def announce(self, text: str) -> None:
        self.announced.append(text)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.driver.close()


def test_lines_say_who_has_written_them(bench: Bench) -> None:
    bench.reports.output(Output("m", 1, True, [("", "one"), ("actor", "two")]))
    bench.registry.actor("m", 1, "first", here=True)
    bench.reports.output(Output("m", 1, False, [("", "three")]))
    bench.reports.output(Output("forgotten", 1, False, [("", "four")]))
    assert [([str(line) for line in folded([each])], each.err) for each in bench.lines_shown] == [
        (["[m n=1] one", "[actor n=1] two"], True),
        (["[first n=1] three"], False),
    ]


def test_lines_that_are_not_wanted_are_not_shown(bench: Bench) -> None:
    def shown(rank: int) -> bool:
        count = len(bench.lines_shown)
        bench.reports.output(Output("m", rank, False, [("", "line")]))
        return len(bench.lines_shown) > count

    bench.live.set_program(parse_shown("ranks(0)", ""))
    assert [shown(0), shown(1)] == [True, False]


def test_a_line_waits_only_where_others_may_print_the_same(bench: Bench) -> None:
    def wait() -> float:
        bench.reports.output(Output("m", 1, False, [("", "line")]))
        return bench.lines_shown[-1].wait

    assert wait() == Shown().wait(script=False) > 0
    bench.live.set_program(parse_shown("ranks(1)", ""))
    assert wait() == 0.0
    bench.live.set_program(parse_shown("fold=off", ""))
    assert wait() == 0.0
    bench.live.set_program(None)
    bench.mesh.script = True
    assert wait() == 0.0 and not bench.lines_shown[-1].prefixed
    bench.live.set_program(parse_shown("fold=0.5", ""))
    assert wait() == 0.5 and bench.lines_shown[-1].prefixed


def test_the_last_lines_of_ranks_on_other_machines_are_kept(bench: Bench) -> None:
    lines = [("", f"line {number} {'x' * 2000}") for number in range(30)]
    bench.reports.output(Output("m", 1, False, lines))
    assert bench.mesh.last_lines == {}
    bench.mesh.agent_of[1].machine = 5
    bench.reports.output(Output("m", 1, False, lines))
    bench.reports.output(Output("m", 1, True, [("", "the last")]))
    kept = bench.mesh.last_lines[1]
    assert len(kept) == 20 and kept[-1] == "the last" and max(map(len, kept)) == 1000


def test_silence_is_told_until_it_ends(bench: Bench) -> None:
    bench.reports.pulse(Pulse("m", 1, "stopped", ""))
    assert bench.mesh.silent[1].state == "stopped"
    bench.reports.pulse(Pulse("m", 1, "answering", ""))
    assert bench.told == [("m", 1, "stopped"), ("m", 1, "")] and bench.mesh.silent == {}
    assert bench.announced == [
        "m rank 1 (n=1) on h does not answer: its process was stopped by a signal (SIGCONT resumes it)",
        "m rank 1 (n=1) on h answers again",
    ]


def test_c_code_is_told_with_its_stack(bench: Bench) -> None:
    stack = 'Thread 0x1 (most recent call first):\n  File "/src/user.py", line 3 in work'
    bench.reports.pulse(Pulse("m", 0, "busy", stack))
    assert "C code holds its GIL\n" in bench.announced[0] and "user.py" in bench.announced[0]


def test_the_silence_of_a_mesh_that_is_stopped_is_nobodys_business(bench: Bench) -> None:
    bench.mesh.begin_stop(bench.driver)
    bench.reports.pulse(Pulse("m", 1, "stopped", ""))
    assert bench.announced == [] and bench.told == []


def test_events_that_were_left_out_are_counted_by_kind(bench: Bench) -> None:
    event = next(iter(DROPPABLE))
    bench.reports.dropped([("m", 0, {event: 2}), ("m", 1, {event: 3}), ("forgotten", 4, {event: 1})])
    assert [line.partition(" were dropped")[0] for line in bench.announced] == [
        f"5 {DROPPABLE[event]} on ranks 0-1 of m",
        f"1 {DROPPABLE[event]} on rank 4 of forgotten",
    ]
