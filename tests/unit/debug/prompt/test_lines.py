"""Which lines that are typed at a rank's prompt are for the mesh."""

from __future__ import annotations

import pytest

from meshrt.debug.prompt.lines import is_for_the_mesh, parse_line, rank_words
from meshrt.errors import UsageError


@pytest.mark.parametrize(
    "line",
    [
        "interrupt trainer", "cast trainer ranks(0) p x", "attach trainer 3", "  logs -n 3 trainer", "wait trainer 5",
        "memory", "mem ranks(1)", "memory --by host", "memory -r", "vars", "vars self.cache", "vars -n 2", "status",
        "breaks", "int trainer", "postmortem on", "where trainer", "where ranks(0)", "bt -v", "w trainer",
        "continue trainer", "c trainer ranks(0)", "names",
    ],
)  # fmt: skip
def test_pdb_could_do_nothing_with_it(line: str) -> None:
    assert is_for_the_mesh(line, lambda _word: False)


@pytest.mark.parametrize(
    "line",
    [
        "", "   ", "where", "where 3", "w", "continue", "c", "p trainer", "list", "list trainer", "l", "clear", "b",
        "break a.py:3", "help cast", "quit", "memory = 3", "status: int = 3", "logs(3)", "interrupt.x", "vars(self)",
        "n", "self.x", "import status", "ps", "top", "# status", "!status", "wait += 1", "for status in x:",
    ],
)  # fmt: skip
def test_it_is_pdbs(line: str) -> None:
    assert not is_for_the_mesh(line, lambda _word: False)


def test_a_variable_of_the_stack_frame_goes_first() -> None:
    asked = []

    def is_variable(word: str) -> bool:
        asked.append(word)
        return word == "memory"

    assert not is_for_the_mesh("memory", is_variable) and not is_for_the_mesh("memory - 3", is_variable)
    assert is_for_the_mesh("status", is_variable)
    assert is_for_the_mesh("memory ranks(0)", is_variable)  # never valid Python: the rank is not asked
    assert asked == ["memory", "memory", "status"]


def test_words_of_pdb_at_the_prompt_of_the_mesh() -> None:
    for line, said in (
        ("detach", "no rank is attached"),
        ("n", "is a command of pdb: attach to a rank first"),
        ("!x = 3", "is a command of pdb"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_line(line)


def test_words_that_complete_at_a_rank() -> None:
    assert {"detach", "next", "where", "cast", "memory"} <= set(rank_words())
    assert "top" not in rank_words()


def test_a_line_of_the_shell_at_a_rank() -> None:
    assert is_for_the_mesh("meshrt list", lambda _word: False)
    assert not is_for_the_mesh("meshrt = 3", lambda _word: False)
    with pytest.raises(UsageError, match="without meshrt: list"):
        parse_line("meshrt list")
