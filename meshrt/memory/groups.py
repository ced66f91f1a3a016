"""Ranks and variables added up: by host, actor, type of the variable, dtype of the array, or rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshrt.errors import UsageError
from meshrt.hooks.measured import ReferenceRow
from meshrt.hooks.operations import Data
from meshrt.memory.document import Document, entries, unmeasured
from meshrt.memory.look import Growing, growth_of
from meshrt.memory.operations import RankRow, SizeRow

__all__ = ["OF_REFERENCES", "OF_VARIABLES", "Group", "grouped", "is_exact"]

#: Groupings that apply to variables only.
OF_VARIABLES = ("type", "dtype")
#: ... to references only.
OF_REFERENCES = "callsite"


class Group(Data, frozen=True, kw_only=True, omit_defaults=True):
    """Rows added up, as docs/json.md says; None: there is nothing of that kind. Bytes are those of all ranks.

    Attributes:
        ranks, without_rss: How many, and of how many the RSS is not known.
        variables: How many; ``bytes``, ``estimate``, ``exact``, ``devices``: summed over ranks and variables.
        references: How many; ``stored``: their bytes, each once.
    """

    key: str
    ranks: int | None = None
    address: str | None = None
    without_rss: int | None = None
    rss: int | None = None
    pss: int | None = None
    references: int | None = None
    stored: int | None = None
    bytes: int | None = None
    exact: bool | None = None
    estimate: int | None = None
    devices: Mapping[str, int] | None = None
    growth: int | None = None
    growth_exact: bool | None = None
    grown: int | None = None
    grown_exact: bool | None = None
    variables: int | None = None

    @property
    def size(self) -> int:
        """The bytes by which groups are ordered: the RSS, or else what variables hold, estimated where not counted."""
        if self.rss is not None:
            return self.rss
        held = (self.bytes or 0) + sum((self.devices or {}).values())
        return max(held, self.estimate or 0)


@dataclass(slots=True)
class _Sums:
    """What is added up for a group; ``members``: the rows whose growth is that of the group."""

    ranks: list[RankRow] = field(default_factory=list)
    sizes: list[SizeRow] = field(default_factory=list)
    names: set[tuple[str, str, str]] = field(default_factory=set)
    references: list[ReferenceRow] = field(default_factory=list)
    members: list[Growing] = field(default_factory=list)

    def group(self, key: str, by: str) -> Group:
        addresses = [row.address for row in self.ranks if row.address] if by == "host" else []
        known = [row for row in self.ranks if row.rss is not None]
        with_pss = [row for row in self.ranks if row.pss is not None]
        sizes, references = self.sizes, self.references
        stored = sum(row.count * row.size for row in references) if references else None
        counted = sum(size.bytes for size in sizes) if sizes else None
        of_site = by == OF_REFERENCES
        held, likely = sum(size.held for size in sizes), sum(size.likely for size in sizes)
        devices: Counter[str] = Counter()
        for size in sizes:
            devices.update(size.devices)
        growth, growth_exact = _growth(self.members, "growth")
        grown, grown_exact = _growth(self.members, "grown")
        return Group(
            key=key,
            ranks=len(self.ranks) or None,
            address=addresses[-1] if addresses else None,
            without_rss=sum(map(unmeasured, self.ranks)) or None,
            rss=sum(row.rss or 0 for row in known) if known else None,
            pss=sum(row.pss or 0 for row in with_pss) if with_pss else None,
            references=sum(row.count for row in references) if references else None,
            stored=None if of_site else stored,
            bytes=stored if of_site else counted,
            exact=all(size.exact for size in sizes) if sizes or of_site else None,
            estimate=likely if likely > held else None,
            devices=devices or None,
            growth=growth,
            growth_exact=growth_exact,
            grown=grown,
            grown_exact=grown_exact,
            variables=len(self.names) if sizes else None,
        )


def grouped(document: Document, by: str) -> list[Group]:
    """Return the groups, the largest first.

    References of a group are those of a host, or those that ranks of an actor have put. By type or dtype there are only
    variables.

    Raises:
        UsageError: The document has no rows of the kind that ``by`` groups.
    """
    if by == OF_REFERENCES and document.references is None:
        raise UsageError(f"--by {by} adds up references; expected it with --refs")
    if by in OF_VARIABLES and document.variables is None:
        raise UsageError(f"--by {by} adds up variables; expected it with --vars")
    sums: dict[str, _Sums] = {}
    keys = {(row.mesh_id, row.rank): _key(row, by) for row in document.ranks}
    if by == OF_REFERENCES:
        for reference in (*(document.references or ()), *(document.references_ended or ())):
            group = sums.setdefault(reference.site or reference.kind, _Sums())
            group.references.append(reference)
            group.members.append(reference)
        return _ordered(sums, by)
    if by not in OF_VARIABLES:
        for row in document.ranks:
            group = sums.setdefault(_key(row, by), _Sums())
            group.ranks.append(row)
            if row.state != "dead":
                group.members.append(row)
        owners = {row.pid: keys[row.mesh_id, row.rank] for row in document.ranks}
        owners.update((row.pid, row.kind) for row in document.processes)
        for reference in document.references or ():
            key = reference.host if by == "host" else owners.get(reference.owner, "-")
            sums.setdefault(key, _Sums()).references.append(reference)
    for (mesh_id, actor, _, where, type_name), rank, size in entries(document.variables or ()):
        if by in OF_VARIABLES:
            key = type_name if by == "type" else size.dtype or "-"
        else:
            key = actor if by == "actor" else keys.get((mesh_id, rank), "script")
        group = sums.setdefault(key, _Sums())
        group.names.add((mesh_id, actor, where))
        group.sizes.append(size)
        if by in OF_VARIABLES:
            group.members.append(size)
    return _ordered(sums, by)


def _ordered(sums: Mapping[str, _Sums], by: str) -> list[Group]:
    return sorted((each.group(key, by) for key, each in sums.items()), key=lambda group: (-group.size, group.key))


def _growth(rows: Sequence[Growing], word: str) -> tuple[int | None, bool | None]:
    """Return the sum of the growths of rows, and False if it is a lower bound: the growth of some is one, or not known.

    A lower bound of 0 is left out, as for one row.
    """
    known = [growth for row in rows if (growth := growth_of(row, word)) is not None]
    exact = len(known) == len(rows) and all(is_exact(row, word) for row in rows)
    if not known or not (exact or sum(known) > 0):
        return None, None
    return sum(known), None if exact else False


def is_exact(row: Growing, word: str) -> bool:
    """Whether a growth of a row is no lower bound."""
    if isinstance(row, SizeRow | Group):
        return (row.grown_exact if word == "grown" else row.growth_exact) is not False
    return True


def _key(row: RankRow, by: str) -> str:
    if by == "host":
        return row.host
    if by == "actor":
        return ",".join(row.actors) or "-"
    return f"{row.mesh} {row.rank}"
