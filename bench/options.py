"""The command line of ``python -m bench``."""

import argparse
from pathlib import Path
from typing import NamedTuple

from bench.against import LEAST_ROUNDS, commit_of
from bench.peers import CONTESTANTS, SUBJECT
from bench.rows import ON_REQUEST, Row, choose, table_rows

__all__ = ["Options", "parse"]


class Options(NamedTuple):
    """What to measure, how often, and where the numbers go; ``against``: a commit of meshrt, as a short hash."""

    peers: tuple[str, ...]
    rows: list[Row]
    rounds: int
    quick: bool
    timeout: float
    json: Path | None
    against: str | None


def words(text: str) -> tuple[str, ...]:
    """Split a list at its commas."""
    return tuple(word for word in text.split(",") if word)


def numbers(text: str) -> tuple[int, ...]:
    """Split a list of counts at its commas."""
    return tuple(count(word) for word in words(text))


def count(text: str) -> int:
    """Read a number of at least one."""
    value = int(text)
    if value < 1:
        raise ValueError(f"{value} is less than 1")
    return value


def parse(arguments: list[str]) -> Options:
    """Read the command line; end the program with a message where it makes no sense."""
    known = [each.name for each in CONTESTANTS]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure meshrt and its peers, interleaved, each run in a fresh process.",
    )
    parser.add_argument("--peers", type=words, help=f"of {','.join(known)}; default all, with --against {SUBJECT}")
    parser.add_argument("--against", metavar="REF", help="compare with meshrt at another commit, and say what differs")
    parser.add_argument("--rows", type=words, help="keys, scenarios or beginnings of keys: cold,one,death")
    parser.add_argument("--rounds", type=count, help=f"default 3, with --quick 1, with --against {LEAST_ROUNDS}")
    parser.add_argument("--sizes", type=numbers, help="of the cold start; default 4,16,64, with --quick 4,16")
    parser.add_argument("--ranks", type=count, default=16, help="of the other rows; default 16")
    parser.add_argument("--quick", action="store_true", help="a fifth of the repetitions, and one round")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds a run; default 180")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values into this file")
    given = parser.parse_args(arguments)
    peers = given.peers or ((SUBJECT,) if given.against else tuple(known))
    if unknown := [name for name in peers if name not in known]:
        parser.error(f"unknown peers: {', '.join(unknown)}; there are {', '.join(known)}")
    rows = table_rows(given.sizes or ((4, 16) if given.quick else (4, 16, 64)), given.ranks)
    if given.rows:
        try:
            rows = choose(rows, given.rows)
        except ValueError as error:
            parser.error(str(error))
    else:
        rows = [row for row in rows if row.scenario not in ON_REQUEST]
    rounds = given.rounds or (LEAST_ROUNDS if given.against else 1 if given.quick else 3)
    if given.against and (SUBJECT not in peers or rounds < LEAST_ROUNDS):
        parser.error(f"--against needs {SUBJECT} among the peers, and {LEAST_ROUNDS} rounds or more")
    try:
        against = commit_of(given.against) if given.against else None
    except ValueError as error:
        parser.error(str(error))
    return Options(peers, rows, rounds, given.quick, given.timeout, given.json, against)
