"""``meshrt run``: on several ranks of this machine, as one rank of a launcher, or as the only rank.

Each process of a launcher runs this: it loads as little as it can.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path

from meshrt.commandline.command import Arguments
from meshrt.errors import UsageError
from meshrt.spmd.place import Place, place_of
from meshrt.spmd.world import counted, dimensions

__all__ = ["show"]

_USES_MESHRT = re.compile(rb"^\s*(?:from|import)\s+meshrt\b", re.MULTILINE)


def show(arguments: Arguments) -> int:
    """Run ``meshrt run``. Returns the exit status of the script, or 1 if one of several ranks has failed."""
    ranks, mesh = arguments["nproc_per_node"], arguments["mesh"]
    words = _words(arguments)
    place, refused = None, False
    if ranks is None:
        try:
            place = place_of(os.environ)
        except UsageError as error:  # a job that would have run does so
            refused = True
            print(f"meshrt: this process is not visible to meshrt commands: {error}", file=sys.stderr, flush=True)
    if place is None and not (refused or ranks or mesh or _uses_meshrt(words)):
        place = Place("meshrt run", 0, 1, 0, 1, secrets.token_hex(8))
    if place is not None:
        from meshrt.spmd import launched  # start-up: the ways below load other things

        return launched.run(place, words, mesh)
    if refused or (ranks is None and not mesh):
        from meshrt.failure.run import run_alone  # start-up: as above

        return run_alone(words)
    from meshrt.spmd import local  # start-up: as above

    return local.run(words, dimensions(counted(ranks), mesh), arguments["max_restarts"])


def _uses_meshrt(words: Sequence[str]) -> bool:
    """Whether a script that runs alone may have meshes, and so be a program of its own."""
    path = Path(words[0])
    return path.is_file() and os.access(path, os.R_OK) and _USES_MESHRT.search(path.read_bytes()) is not None


def _words(arguments: Arguments) -> list[str]:
    """Return the words of the script, as deepspeed would have them."""
    words: list[str] = arguments["words"]
    if not arguments["local_rank"]:
        return words
    first = 2 if words[0] == "-m" else 1
    return [*words[:first], f"--local_rank={arguments['local_rank']}", *words[first:]]
