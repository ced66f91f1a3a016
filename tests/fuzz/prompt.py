"""What a person types: selections of ranks, command lines of the prompt."""

from __future__ import annotations

import json

from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.debug.prompt.lines import parse_line
from meshrt.errors import MeshError, SelectionError
from meshrt.selection import Shape, parse, resolve
from tests.fuzz.running import Target

__all__ = ["TARGETS"]

_SHAPE = Shape.from_extent({"hosts": 4, "gpus": 6})
_SELECTIONS = (
    "ranks(hosts=1:3, gpus=(0,2))", "0:8", "ranks(all) & !stopped", "hosts=0 | gpus=-1", "ranks(0,3-5)", "::2",
    "ranks(hosts=2:)", "(hosts=1 & gpus=2) | 7", "any", "!ranks(gpus=0:6:2)", "dead", "ranks(hosts=1, gpus=1:-1)",
)  # fmt: skip
_WORDS = (
    "ranks(", "(", ")", "hosts", "gpus", "=", ":", ",", "&", "|", "!", "-", "-1", "0", "99999999999999999999", " ",
    "all", "stopped", "running", "'", '"', "\\", "\x00", "é", "--diff", "-n", "-v", "--", "trainer", "a.py:3", ";",
    "\n",
)  # fmt: skip
_LINES = (
    "cast trainer ranks(hosts=2:, gpus=(0,3)) p total * 3", "where -v", "p trainer self.step", "break a.py:3, x > 1",
    "logs -n 3 trainer", "continue", "attach trainer 3", "list", "memory trainer --vars", "interrupt trainer ranks(0)",
    'break "my file.py":3', "help cast", "postmortem on", "p --diff 2 trainer ranks(all) x", "watch trainer loss",
)  # fmt: skip


def _selection(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    selection = parse(text)
    assert parse(str(selection)) == selection
    ranks = resolve(selection, _SHAPE)
    assert list(ranks) == sorted(set(ranks)) and all(0 <= rank < 24 for rank in ranks)


def _line(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    if text.strip():
        json.dumps({**(parse_line(text).arguments or {}), "look": None})


def _lines() -> list[bytes]:
    commands = COMMANDS.offered(Offer.PROMPT)
    return [*(line.encode() for line in _LINES), *(f"{each.name} trainer 3".encode() for each in commands)]


_selections = [text.encode() for text in _SELECTIONS]
_words = [word.encode() for word in _WORDS]
TARGETS = [
    Target(
        "selection",
        _selection,
        lambda: [text.encode() for text in _SELECTIONS],
        (SelectionError,),
        "text",
        _words,
        1500,
    ),
    Target("line", _line, _lines, (MeshError,), "text", _words, count=4000),
]
