"""Which sources of stack frames an IDE opens as files, and which it asks for."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.debug.dap.operations import SourceText
from meshrt.debug.dap.router.sources import Sources
from meshrt.errors import UsageError
from tests.unit.debug.dap.router.fakes import FakeProgram, run

THERE = "/no/such/directory/train.py"


def program(*, is_elsewhere: bool) -> Any:
    made = FakeProgram()
    made.is_elsewhere = is_elsewhere
    return made


def numbers(sources: Sources, *paths: str, number: int = 0) -> list[int]:
    frames = [{"source": {"path": path, "sourceReference": number}} for path in paths]
    sources.note([*frames, {}])
    return [frame["source"]["sourceReference"] for frame in frames]  # type: ignore[misc]


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_file_that_is_here_has_no_number(is_elsewhere: bool) -> None:
    sources = Sources(program(is_elsewhere=is_elsewhere))
    assert numbers(sources, __file__, THERE, "<in>", number=3) == [0, 3, 3]


def test_a_file_of_another_machine_has_one_number() -> None:
    sources = Sources(program(is_elsewhere=True), ["/mapped", ""])
    first, again, other, *files = numbers(
        sources, THERE, THERE, f"{THERE}2", __file__, "/mapped/train.py", "<in>", "C:\\a.py"
    )
    assert first == again > 1 << 29 and other not in (first, 0) and files == [0, 0, 0, 0]
    # A program of this machine is looked at on this machine: there is nothing to be fetched.
    assert numbers(Sources(program(is_elsewhere=False)), THERE) == [0]


def test_its_text_is_that_of_the_program() -> None:
    async def scene() -> None:
        asked = program(is_elsewhere=True)
        sources = Sources(asked)
        (number,) = numbers(sources, THERE)
        asked.answers["dap.source"] = SourceText("import meshrt\n")
        assert await sources.text(number) == "import meshrt\n"
        asked.answers["dap.source"] = SourceText(None)
        with pytest.raises(UsageError, match=f"{THERE} is neither on this machine nor on the machine of the script"):
            await sources.text(number)
        assert await sources.text(5) is None, "that of an engine: it is asked"

    run(scene)


def test_an_engine_is_told_the_path_alone() -> None:
    sources = Sources(program(is_elsewhere=True))
    (number,) = numbers(sources, THERE)
    asked = {"source": {"path": THERE, "sourceReference": number}, "breakpoints": [{"line": 3}]}
    assert sources.for_engine(asked) == {"source": {"path": THERE}, "breakpoints": [{"line": 3}]}
    for own in ({"source": {"path": "<in>", "sourceReference": 3}}, {"source": None}, {"line": 3}):
        assert sources.for_engine(own) == own
