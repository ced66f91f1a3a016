"""What the process that a launcher has started tells the two that it starts: the script's, and the program of the job.

`meshrt attach` and `join` send it as JSON. This module loads as little as it can: one process for each rank has it.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import NamedTuple, Self

from meshrt.show.records import to_text
from meshrt.transport.directories import ERROR_FILE

__all__ = ["ACTOR", "JOB_IGNORES", "JOB_PROGRAM", "Arrival", "JobSpec", "Part", "job_environment"]

JOB_PROGRAM = Path(__file__).with_name("job.py")
#: Signals for the job are for its ranks, and not for its program.
JOB_IGNORES = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: The actor that a script is shown as.
ACTOR = "main"


class Part(NamedTuple):
    """The part of a process in its job.

    Attributes:
        meeting: The name of the socket where it joins.
        rank: Its rank.
        sizes: Dimensions of the mesh and their sizes.
        actor: What the script is shown as.
        stacks, watcher: Descriptors, see `meshrt.spmd.membership.Membership`.
        job: The pid of the program of the job or host, in its first process; that one tells what concerns them all.
    """

    meeting: str
    rank: int
    sizes: dict[str, int]
    actor: str
    stacks: int
    watcher: int
    job: int = 0


class JobSpec(NamedTuple):
    """What the process of the first rank of a host knows of the job.

    Attributes:
        meeting: Name of the socket on each host where its ranks join.
        sizes: Dimensions of the mesh and their sizes.
        words: The command of the script, for listings.
        actor: What the script is shown as.
        launcher, host, hosts: See `meshrt.spmd.place.Place`.
        parent: The pid of that process.
        name: Of the mesh.
    """

    meeting: str
    sizes: dict[str, int]
    words: list[str]
    actor: str
    launcher: str
    host: int
    hosts: int
    parent: int
    name: str = "run"

    def to_json(self) -> str:
        """Return it as text."""
        return to_text([*self])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what `to_json` has written."""
        return cls(*json.loads(text))


class Arrival(NamedTuple):
    """The part of a process that `meshrt attach` takes in.

    Attributes:
        spec: The program, a `JobSpec` as JSON: the first process to arrive starts it.
        rank: Of this process.
        command: The interpreter of that program, and its options: that of the command, which has all that it needs.
        variables: Of its environment, beside those of this process.
    """

    spec: str
    rank: int
    command: list[str]
    variables: dict[str, str]

    def to_json(self) -> str:
        """Return it as text."""
        return to_text([*self])

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return what `to_json` has written."""
        return cls(*json.loads(text))


def job_environment() -> dict[str, str]:
    """Return the environment of the job's program: the error file of the launcher is that of a rank."""
    return {name: value for name, value in os.environ.items() if name != ERROR_FILE}
