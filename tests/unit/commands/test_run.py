"""`meshrt run`: the words of torchrun are understood, and others are refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.errors import UsageError


def parsed(line: str) -> Any:
    return COMMANDS.parse_words(line.split(), Offer.SHELL).arguments


@pytest.mark.parametrize("option", ["-n", "--nproc-per-node", "--nproc_per_node"])
@pytest.mark.parametrize(("given", "ranks"), [("8", 8), ("auto", "auto"), ("gpu", "gpu")])
def test_the_number_of_ranks(option: str, given: str, ranks: object) -> None:
    found = parsed(f"run {option} {given} --nnodes 1:1 --standalone train.py --lr 3e-4")
    assert ranks in found.values() and list(found["words"]) == ["train.py", "--lr", "3e-4"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-n 0", "'0' is not a valid number of ranks; expected 1 or more, auto, cpu or gpu"),
        ("-n many", "'many' is not a valid number of ranks"),
        ("--nnodes 2", "torchrun --nnodes 2 ... -m meshrt run SCRIPT"),
        ("--max_restarts -1", "'-1' is not a valid number of restarts; expected 0 or more"),
    ],
)
def test_what_cannot_be_is_refused(line: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parsed(f"run {line} train.py")
    assert expected in str(caught.value)
