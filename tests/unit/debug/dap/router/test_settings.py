"""What an IDE has set is set in all ranks, whenever they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from meshrt.debug.dap.router import settings as module
from meshrt.debug.dap.router.channels import RankLink
from meshrt.debug.dap.router.members import Member
from meshrt.debug.dap.router.ranks import Key, Names, Rank
from meshrt.debug.dap.router.settings import Settings
from meshrt.errors import DebugAdapterError

Asked = dict[str, Any]


class Engine:
    """Takes breakpoints in lines that are not ``bad``; their numbers are those of the lines."""

    def __init__(self, *, bad: int = 0) -> None:
        self.asked: list[tuple[str, Asked]] = []
        self.meanwhile: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._bad = bad

    async def request(self, command: str, arguments: Asked) -> Asked:
        self.asked.append((command, arguments))
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        if command == "setExceptionBreakpoints" and self._bad:
            raise DebugAdapterError("it has ended")
        lines = [each["line"] for each in arguments.get("breakpoints", ())]
        return {"breakpoints": [{"id": line, "verified": line != self._bad, "line": line} for line in lines]}


def member(rank: int, engine: Engine, *, ready: bool = True) -> Member:
    return Member(Rank("m1", rank, f"rank {rank}"), cast(RankLink, engine), Names(), ready=ready)


def settings_of(*engines: Engine) -> tuple[Settings, dict[Key, Member], list[Asked]]:
    """Return the settings, the ranks, and the breakpoints that the IDE is told of."""
    members = {("m1", rank): member(rank, engine) for rank, engine in enumerate(engines)}
    told: list[Asked] = []
    return Settings(members, Names(), told.append), members, told


async def set_lines(settings: Settings, *numbers: int, path: str = "a.py") -> list[Asked]:
    """Set breakpoints; returns them as the IDE is answered."""
    answer = await settings.set_breakpoints("setBreakpoints", path, numbers, lines(*numbers, path=path))
    return list(answer["breakpoints"])


def lines(*numbers: int, path: str = "a.py") -> Asked:
    return {"source": {"path": path}, "breakpoints": [{"line": number} for number in numbers]}


def test_a_breakpoint_is_one_of_all_engines() -> None:
    settings, _, told = settings_of(Engine(), Engine(bad=7), Engine())
    five, seven = asyncio.run(set_lines(settings, 5, 7))
    assert five["verified"] and "message" not in five
    assert seven["verified"] and seven["message"] == "not set in rank 1"
    for rank in range(3):
        assert settings.point(("m1", rank), 5) == five["id"] != seven["id"]
    settings.forget(("m1", 1))
    assert settings.point(("m1", 1), 5) is None and settings.point(("m1", 2), 7) == seven["id"]
    # Now it is in all that are left.
    assert told == [{"id": seven["id"], "verified": True, "line": 7}]
    # Those that the IDE has replaced are nobody's.
    (six,) = asyncio.run(set_lines(settings, 6))
    assert settings.point(("m1", 0), 5) is None and settings.point(("m1", 0), 6) == six["id"]


def test_without_ranks_nothing_is_verified_until_one_comes() -> None:
    settings, members, told = settings_of()
    (point,) = asyncio.run(set_lines(settings, 5))
    assert not point["verified"] and point["message"] == "no rank is attached"
    assert asyncio.run(settings.set_other("setExceptionBreakpoints", {})) is None
    members["m1", 0] = comes = member(0, Engine(), ready=False)
    asyncio.run(settings.give(comes))
    assert told == [{"id": point["id"], "verified": True, "line": 5}]
    settings.forget(("m1", 0))
    assert not told[1]["verified"]


def test_the_first_that_answers_answers_for_all() -> None:
    settings, *_ = settings_of(Engine(bad=1), Engine())
    asked = {"filters": [], "breakpoints": [{"line": 3}]}
    said = asyncio.run(settings.set_other("setExceptionBreakpoints", asked))
    assert said is not None and said["breakpoints"][0]["verified"]


def test_a_late_rank_is_given_the_latest_of_each_other_setting() -> None:
    settings, members, _ = settings_of()
    for asked, replaces in (({"x": 1}, "x"), ({"y": 1}, "y"), ({"x": 2}, "x")):
        asyncio.run(settings.set_other("setOther", asked, replaces))
    engine = Engine()
    members["m1", 0] = comes = member(0, engine, ready=False)
    asyncio.run(settings.give(comes))
    assert engine.asked == [("setOther", {"x": 2}), ("setOther", {"y": 1})]


def test_functions_have_numbers_of_the_session_too() -> None:
    settings, *_ = settings_of(Engine(), Engine())
    (line,) = asyncio.run(set_lines(settings, 5))
    asked = {"breakpoints": [{"name": "step", "line": 1}]}
    (function,) = asyncio.run(settings.set_breakpoints("setFunctionBreakpoints", "", [None], asked))["breakpoints"]
    assert function["verified"] and function["id"] != line["id"]
    assert settings.point(("m1", 1), 1) == function["id"] and settings.point(("m1", 1), 5) == line["id"]


def test_a_late_rank_is_given_what_is_set_while_it_comes() -> None:
    settings, members, told = settings_of(Engine())
    late = Engine()
    members["m1", 1] = comes = member(1, late, ready=False)

    async def more() -> None:
        await set_lines(settings, 9, path="b.py")
        await settings.configured()

    late.meanwhile = more

    async def come() -> int:
        (five,) = await set_lines(settings, 5)
        assert late.asked == []
        await settings.give(comes)
        return int(five["id"])

    five = asyncio.run(come())
    assert comes.ready
    assert ("setBreakpoints", lines(5)) in late.asked and ("setBreakpoints", lines(9, path="b.py")) in late.asked
    assert [command for command, _ in late.asked].count("configurationDone") == 1
    # Its numbers are those that the IDE has, which hears nothing new.
    assert settings.point(("m1", 1), 5) == settings.point(("m1", 0), 5) == five and told == []


def test_a_rank_that_ends_while_it_comes_is_none() -> None:
    settings, members, _ = settings_of()
    members["m1", 0] = comes = member(0, engine := Engine(), ready=False)

    async def ends() -> None:
        del members["m1", 0]

    engine.meanwhile = ends

    async def come() -> None:
        await set_lines(settings, 5)
        with pytest.raises(DebugAdapterError, match="rank 0 has ended"):
            await settings.give(comes)

    asyncio.run(come())
    assert not comes.ready and settings.point(("m1", 0), 5) is None


def test_a_silent_rank_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENT_SECONDS", 0.0)

    async def scene() -> None:
        settings, _, told = settings_of(Engine(), silent := Engine())
        answers = asyncio.Event()
        silent.meanwhile = answers.wait
        (five,) = await set_lines(settings, 5)
        assert five["verified"] and five["message"] == "no answer yet from rank 1"
        while not told:
            assert settings.point(("m1", 1), 5) is None
            answers.set()
            await asyncio.sleep(0)
        # It has it, under the number that the IDE knows.
        assert told == [{"id": five["id"], "verified": True, "line": 5}]
        assert settings.point(("m1", 1), 5) == five["id"]

    async def limited() -> None:
        async with asyncio.timeout(30):
            await scene()

    asyncio.run(limited())
