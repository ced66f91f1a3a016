"""What was measured, by row, contestant and round, and what follows from it: medians, ratios, bars."""

import statistics
from typing import NamedTuple

from bench.peers import SUBJECT
from bench.rows import Bar, Row
from bench.scenarios import Values

__all__ = ["Results", "Verdict"]


class Verdict(NamedTuple):
    """A bar, what was found, and whether it holds; ``found`` is ``None`` where a side was not measured."""

    bar: Bar
    found: float | None

    @property
    def word(self) -> str:
        """Return ``ok``, ``MISSED`` or, where nothing was found, ``-``."""
        if self.found is None:
            return "-"
        return "ok" if self.bar.met(self.found) else "MISSED"


class Results:
    """The values of all rounds. All numbers that go out are in the unit of their row."""

    def __init__(self) -> None:
        self._rounds: list[dict[tuple[str, str], float]] = []

    def begin_round(self) -> None:
        """Let the values that follow belong to a new round."""
        self._rounds.append({})

    def add(self, rows: list[Row], name: str, values: Values) -> None:
        """Keep, for the contestant ``name``, what one run yielded for these rows.

        Only the subject has to have a value for each of them.
        """
        for row in rows:
            if name == SUBJECT or row.value in values:
                self._rounds[-1][row.key, name] = row.shown(values[row.value])

    def values(self, row: Row, name: str) -> list[float]:
        """Return the values of a contestant, one a round; a round whose run failed is left out."""
        cell = (row.key, name)
        return [values[cell] for values in self._rounds if cell in values]

    def median(self, row: Row, name: str) -> float | None:
        """Return the median over the rounds."""
        values = self.values(row, name)
        return statistics.median(values) if values else None

    def ratio(self, row: Row, name: str) -> float | None:
        """Return meshrt / contestant: the ratio within each round, and of these the median.

        A round in which the contestant's value is zero (a count) has no ratio.
        """
        ours, theirs = (row.key, SUBJECT), (row.key, name)
        ratios = [values[ours] / values[theirs] for values in self._rounds if ours in values and values.get(theirs)]
        return statistics.median(ratios) if ratios else None

    def verdicts(self, row: Row) -> list[Verdict]:
        """Hold meshrt against each bar of a row."""
        return [Verdict(bar, self.ratio(row, bar.peer) if bar.peer else self.median(row, SUBJECT)) for bar in row.bars]
