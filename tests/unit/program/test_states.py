"""The state of a rank: what is known of it in several ways has an order."""

from __future__ import annotations

from msgspec.structs import replace

from meshrt.hooks.facts import Unanswered
from meshrt.hooks.fate import Fate
from meshrt.hooks.measured import Measured, ProcessFacts
from meshrt.hooks.snapshot import MeshFacts, Silent
from meshrt.program.places import Place
from meshrt.program.states import RankStates, State, Stop, state_of
from meshrt.program.words import silence
from meshrt.selection import Shape

HERE, THERE = Place("/src/train.py", 7, "step"), Place("/src/load.py", 9, "load")
MESH = MeshFacts("m", "mesh1", Shape.from_extent({"n": 4}), alive=(0, 1, 2, 3), started=100.0)
STOPPED = Stop(State("stopped", 110.0, HERE), HERE)
HELD = State("stopped", 120.0, THERE, "in an IDE")
BLOCKED = State("blocked", 130.0, THERE)


def test_the_first_thing_that_is_known_tells() -> None:
    ended = replace(MESH, ended={0: Fate("died", exit_code=3, when=140.0)}, silent={0: Silent("busy", 135.0)})
    silent = replace(MESH, silent={0: Silent("busy", 135.0)})
    assert state_of(ended, 0, STOPPED, HELD, BLOCKED) == State("dead", 140.0, note="exited with code 3")
    assert state_of(silent, 0, STOPPED, HELD, BLOCKED) == State("not-answering", 135.0, HERE, silence("busy"))
    assert state_of(silent, 0, activity=BLOCKED).place == THERE
    assert state_of(MESH, 0, STOPPED, HELD, BLOCKED) == STOPPED.state
    assert state_of(MESH, 0, Stop(place=HERE), HELD, BLOCKED) == HELD
    assert state_of(MESH, 0, activity=BLOCKED) == BLOCKED
    assert state_of(MESH, 0) == State("running", 100.0)
    idle = State("idle", 130.0)
    assert state_of(MESH, 0, activity=idle) == idle
    # It was stopped in a call that runs; that call has ended since.
    assert state_of(MESH, 0, Stop(place=HERE, resumed=150.0, endpoint="step"), activity=idle) == State("running", 150.0)
    assert state_of(MESH, 0, Stop(resumed=150.0), activity=idle) == State("idle", 150.0)
    assert idle.is_in("running") and idle.is_in("idle") and not State("running").is_in("idle")


def test_a_rank_runs_since_it_was_resumed_or_seen_to_go_on() -> None:
    resumed = Stop(place=HERE, resumed=150.0)
    assert state_of(MESH, 0, resumed) == State("running", 150.0)
    assert state_of(MESH, 0, resumed, activity=State("running", 160.0)) == State("running", 160.0)
    assert state_of(MESH, 0, resumed, activity=State("not-answering", 140.0)) == State("running", 150.0)


def test_nobody_knows_what_a_rank_does_whose_host_is_silent() -> None:
    measured = Measured(silent=["h0"])
    assert HELD.measured(None, "h0", measured).note == silence("host")
    assert HELD.measured(ProcessFacts(rss=1), "h0", measured) == HELD == HELD.measured(None, "h1", measured)
    dead = State("dead", note="exited with code 3")
    assert dead.measured(None, "h0", measured) == dead and dead.silent and not HELD.silent


def test_the_kernel_tells_of_a_stop_before_a_request_times_out() -> None:
    measured = Measured()
    for letter in ("T", "t"):
        silent = BLOCKED.measured(ProcessFacts(kernel=letter), "h0", measured)
        assert (silent.word, silent.place, silent.note) == ("not-answering", THERE, silence("stopped"))
    assert BLOCKED.measured(ProcessFacts(kernel="S"), "h0", measured) == BLOCKED
    busy = State("not-answering", 135.0, HERE, silence("busy"))
    assert busy.measured(ProcessFacts(kernel="T"), "h0", measured) == busy


def test_what_a_question_finds_out() -> None:
    silent = BLOCKED.unanswered(Unanswered("m", (0,), "silent", "", "busy"))
    assert silent == State("not-answering", note=silence("busy"))
    assert BLOCKED.unanswered(Unanswered("m", (0,), "refused", "too many")) == replace(BLOCKED, note="too many")
    assert State("running", 1.0).of_process(0) == State("starting")
    assert State("running", 1.0).of_process(7) == State("running", 1.0)
    assert HELD.of_process(0) == HELD


def test_what_a_selection_means_by_a_state_and_a_place() -> None:
    states = RankStates({0: BLOCKED, 1: State("post-mortem", 1.0, HERE), 2: State("running")}, {"dp": {0, 2}})
    assert states.groups() == {"dp": {0, 2}}
    assert set(states.in_state("running")) == {0, 2} and set(states.in_state("blocked")) == {0}
    assert set(states.in_state("stopped")) == {1} and set(states.in_state("dead")) == set()
    assert set(states.at("train.py", 7)) == {1} and set(states.at("load.py", 7)) == set()
    assert (BLOCKED.where, State("running").where) == ("load.py:9 (load)", "")
