"""Looks one after the other: rates, growth, and what becomes of ranks that are silent, started again, or no more."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from meshrt.errors import UsageError
from meshrt.selection import Shape
from meshrt.top.columns import COLUMNS as SHOWN
from meshrt.top.columns import Sorting, column, in_order, shown_columns
from meshrt.top.model import Model, Row, Totals
from meshrt.top.operations import ActorWork, Looked, MeshLook, RankLook, Use, WorkOfRank
from meshrt.top.table import document, summary, table

MIB = 1 << 20


def rank(number: int, **more: Any) -> dict[str, Any]:
    """What is told of a rank of mesh ``m``, at second 10 of its host's clock."""
    return {
        "mesh_id": "m", "rank": number, "host": "node0", "pid": 100 + number, "incarnation": 0, "state": "running",
        "since": 1.0, "place": "", "note": "", "rss": 20 * MIB, "shmem": MIB, "swap": 0, "cpu": 1.0, "at": 10.0,
        "threads": 2, "actors": [["a", "", 100, 0, False]], "told": 10.0, **more,
    }  # fmt: skip


def look(*ranks: dict[str, Any], time: float = 50.0, meshes: tuple[str, ...] = ("m",)) -> Looked:
    shape = Shape.from_extent({"n": 4}).to_wire()
    return Looked(time, "run", [MeshLook(name, name, shape) for name in meshes], list(map(seen, ranks)))


def seen(facts: dict[str, Any]) -> RankLook:
    """Return the facts of a rank as the root tells them."""
    facts = dict(facts)
    actors, told, devices = (facts.pop(name, None) for name in ("actors", "told", "devices"))
    use = Use(**{name: facts.pop(name, None) for name in Use.__struct_fields__})
    work = None if actors is None else WorkOfRank([ActorWork(*each) for each in actors], devices or {}, told)
    return RankLook(**{"store": 0, **facts}, actors=["a"], use=use, work=work)


def after(*looks: Looked) -> list[Row]:
    model = Model()
    for each in looks:
        model.take(each)
    return model.rows()


def silent(number: int, **more: Any) -> dict[str, Any]:
    return rank(number, actors=None, told=None, **more)


def test_rates_are_those_between_two_looks() -> None:
    (first,) = after(look(rank(0)))
    assert (first.cpu, first.calls, first.queue, first.growth) == (None, None, 0, None)
    actors = [["a", "step", 130, 4, False], ["new", "", 10, 1, True]]
    later = rank(0, cpu=2.5, at=12.0, told=12.0, actors=actors, rss=25 * MIB, shmem=3 * MIB, store=2 * MIB)
    (row,) = after(look(rank(0, at=8.0, cpu=0.0)), look(rank(0)), look(later))
    assert (row.cpu, row.calls, row.queue, row.more) == (75.0, 20.0, 5, True)
    # Pages of shared memory count by who holds them, not by who has looked at them.
    assert (row.growth, row.store) == (5 * MIB, 2 * MIB)
    assert row.actors is not None and [each.calls for each in row.actors] == [15.0, 5.0]
    again = rank(0, cpu=2.5, at=12.0, told=12.0)
    assert after(look(rank(0)), look(later), look(again))[0].cpu is None  # no time has gone by
    anew = rank(0, cpu=2.5, at=13.0, told=13.0, actors=[["a", "", 3, 0, False]])
    assert after(look(rank(0)), look(later), look(anew))[0].calls == 0.0  # the actor has begun anew


def test_a_rank_that_is_silent_twice_does_not_answer_and_what_the_kernel_tells_goes_on() -> None:
    busy = [look(rank(0)), look(silent(0, cpu=2.0, at=11.0), time=51.0), look(silent(0, cpu=3.0, at=12.0), time=52.0)]
    once, twice = after(*busy[:2])[0], after(*busy)[0]
    assert (once.state, once.cpu, once.calls, once.queue) == ("running", 100.0, None, None)
    assert (twice.state, twice.cpu, twice.since) == ("not-answering", 100.0, 51.0)
    assert "for 1 s: C code holds its GIL" in twice.note
    back = after(*busy, look(rank(0), time=53.0), look(silent(0), time=54.0))
    assert back[0].state == "running"
    # One that a person has stopped is known to be stopped.
    assert after(*[look(silent(0, state="stopped"))] * 3)[0].state == "stopped"


def test_a_rank_that_was_started_again_begins_anew() -> None:
    model = Model()
    for each in (rank(0), rank(0, cpu=9.0, at=11.0, rss=90 * MIB), rank(0, pid=7, incarnation=1, cpu=0.1, at=12.0)):
        model.take(look(each))
    (row,) = model.rows()
    assert (row.pid, row.incarnation, row.growth, row.cpu, row.calls) == (7, 1, None, None, None)


def test_the_dead_stay_with_the_reason_until_they_are_forgotten() -> None:
    dead = silent(1, state="dead", note="was killed by SIGKILL", pid=0, rss=None, cpu=None, at=None)
    model = Model()
    model.take(look(rank(0), rank(1)))
    model.take(look(rank(0), dead))
    assert [(row.state, row.pid, row.rss) for row in model.rows()] == [("running", 100, 20 * MIB), ("dead", 101, None)]
    model.take(look({**rank(0), "mesh_id": "other"}, meshes=("other",)))
    assert [(row.mesh, row.rank, row.state, row.note) for row in model.rows()] == [
        ("other", 0, "running", ""),
        ("m", 0, "dead", "its mesh was stopped"),
        ("m", 1, "dead", "was killed by SIGKILL"),
    ]
    model.take(look({**rank(0), "mesh_id": "other"}, meshes=("other",)), chosen=True)
    assert [row.mesh for row in model.rows()] == ["other"]
    model.take(look({**rank(0), "mesh_id": "other"}, meshes=("other",)))
    assert len(model.rows()) == 3
    model.forget()
    assert [row.mesh for row in model.rows()] == ["other"] and model.get(("m", 0)) is None


def test_a_program_that_makes_meshes_again_and_again_is_not_remembered_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("meshrt.top.model._KEPT", 3)
    model = Model()
    for number in range(6):
        model.take(look({**rank(0), "mesh_id": f"m{number}"}, meshes=(f"m{number}",)))
    assert [row.mesh for row in model.rows()] == ["m5", "m2", "m3", "m4"]


def test_order_and_columns() -> None:
    ranks = [
        rank(0, cpu=1.5, at=11.0),
        rank(1, cpu=1.9, at=11.0),
        rank(2, cpu=1.5, at=11.0),
        rank(3, rss=None, cpu=None),
    ]
    ranks[2].update(state="blocked", place="train.py:7 (step)", note="\x1b[2J")
    rows = after(look(*(rank(number) for number in range(4))), look(*ranks, time=61.0))

    def numbers(by: str, *, reverse: bool = False) -> list[int]:
        return [row.rank for row in in_order(rows, Sorting(by, reverse))]

    # What is not known is last, either way.
    assert (numbers("cpu"), numbers("cpu", reverse=True)) == ([1, 0, 2, 3], [0, 2, 1, 3])
    assert (numbers("rank", reverse=True), numbers("state")) == ([3, 2, 1, 0], [2, 0, 1, 3])
    for each in SHOWN:
        assert sorted(numbers(each.name)) == [0, 1, 2, 3]
    assert [each.name for each in shown_columns(rows, Sorting())] == [
        "rank", "coords", "pid", "state", "cpu", "rss", "calls", "queue", "runs", "note",
    ]  # fmt: skip
    assert "gpu" in [each.name for each in shown_columns(rows, Sorting("gpu"))]
    (swapped,) = after(look(rank(0, swap=3 * MIB)))
    assert column("swap").wanted([swapped]) and column("swap").text(swapped, 0) == "3.0 MiB"
    # What a rank says cannot drive the terminal.
    assert column("note").text(rows[2], 61.0) == "at train.py:7 (step), \\e[2J, since 60 s"
    (named,) = after(look(rank(0, actors=[["a\x1b[31m", "step\nx", 1, 0, False], ["b", "", 1, 0, False]])))
    assert column("runs").text(named, 0) == "a\\e[31m.step\\nx"
    with pytest.raises(UsageError, match="did you mean 'cpu'"):
        column("cup")


def test_a_table_and_its_sums() -> None:
    model = Model()
    model.take(look(rank(0), rank(1)))
    gpu = rank(1, cpu=2.0, at=11.0, told=11.0, actors=[["a", "step", 150, 2, True]], devices={"cuda:0": 3 * MIB})
    model.take(look(rank(0, cpu=1.5, at=11.0, told=11.0), gpu))
    told = copy.deepcopy(model)
    head, first, second, empty, sums = table(model, Sorting("cpu")).splitlines()
    assert " ".join(head.split()) == "RANK COORDS PID STATE CPU% RSS GPU CALLS/S QUEUE RUNS NOTE"
    assert " ".join(first.split()) == "1 n=1 101 running 100 20.0 MiB 3.0 MiB 50 2+ step"
    assert second.split()[4] == "50"
    assert (
        sums == "2 ranks: 2 running | CPU 150% | RSS 40.0 MiB summed | GPU 3.0 MiB | 50 calls/s | 2 waiting"
        and not empty
    )
    both = Totals({"running": 2}, cpu=0.0, rss=4 * MIB, store=2 * MIB, gpu=0, growth=0, calls=0.0, queue=0)
    assert "| RSS 4.0 MiB summed | store 2.0 MiB summed |" in summary(both)
    assert "| RSS 4.0 MiB | store 2.0 MiB |" in summary(replace(both, states={"running": 1})), "of one rank"
    # What is not known is none of a sum: the agent of a host, or a rank, has not answered; a rate needs two looks.
    model.take(look(rank(0, cpu=1.5, at=12.0, told=12.0), silent(1, rss=None, cpu=None)))
    assert summary(model.totals()).partition(" | ")[2] == (
        "CPU 0% of 1 rank | RSS 20.0 MiB summed of 1 rank | 0 calls/s of 1 rank | 0 waiting of 1 rank"
    )
    model.take(look(*(silent(n, rss=None, cpu=None) for n in (0, 1))))
    assert summary(model.totals()).partition(" | ")[2] == "CPU ? | RSS ? | ? calls/s | ? waiting"
    dead = Model()
    dead.take(look(silent(0, state="dead", rss=None, cpu=None)))
    assert summary(dead.totals()) == "1 rank: 1 dead | CPU 0% | RSS 0 B | 0 calls/s | 0 waiting"
    plain = json.loads(json.dumps(document(told, Sorting(), {"pid": 1})))["ranks"][1]
    assert (plain["cpu"], plain["calls"], plain["more"], plain["gpu"]) == (100.0, 50.0, True, 3 * MIB)
    assert plain["actors"] == [{"actor": "a", "endpoint": "step", "calls": 50.0, "queue": 2, "more": True}]
    assert table(Model(), Sorting()).endswith("no ranks | CPU 0% | RSS 0 B | 0 calls/s | 0 waiting")
