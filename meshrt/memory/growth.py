"""The growth since an earlier document: of ranks, of their variables, and of references in shared memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set

import msgspec

from meshrt.errors import UsageError
from meshrt.escapes import escaped_line
from meshrt.hooks.measured import ReferenceRow
from meshrt.memory.document import Document, entries, totals_of
from meshrt.memory.merging import Name, folded
from meshrt.memory.operations import RankRow, SizeRow, VariableRow
from meshrt.program.groups import by_key
from meshrt.show.text import cut

__all__ = ["add_growth"]

#: Least bytes of a variable that has ended and is listed.
_ENDED = 4096
#: Characters of a program's name in an error: the text of -c may be long.
_SCRIPT_MAX = 200

_Key = tuple[Hashable, ...]
"""The identity of references, their holders last."""


def add_growth(document: Document, before: Document, first: Document | None = None) -> Document:
    """Return a document with ``"growth"``, in bytes, in its ranks, variables and references.

    A rank is identified by its mesh, or, in another run, by the name of its mesh; a variable by its name and type. A
    variable that is new has grown by its whole size, if its rank has answered then. If a size of a variable is not
    exact, the growth is a lower bound (``"growth_exact"`` is False): the bytes counted now minus the earlier size or
    estimate. If that is not above 0, the growth is not known. It is not known either for a rank that was started again
    since (``"restarted"`` is True), and for its variables. Variables and references that have ended are listed in
    ``"ended"``, by name, and ``"references_ended"``. ``"not_compared"`` names the parts that the earlier document does
    not have.

    Args:
        first: The first of several earlier documents; the growth since it is ``"grown"``.
    Raises:
        UsageError: ``before`` is of another program, with nothing in common with this one.
    """
    views = (before, *([first] if first is not None else []))
    for earlier in views:
        _check(document, earlier)
    found = _grown_since(document, before, "growth")
    ended = found.ended
    if first is not None:
        found = msgspec.structs.replace(_grown_since(found, first, "grown"), since_first=first.time)
    totals = msgspec.structs.replace(
        totals_of(found.ranks, found.processes, variables=found.variables is not None),
        growth=sum(row.growth or 0 for row in found.ranks),
        grown=None if first is None else sum(row.grown or 0 for row in found.ranks),
    )
    not_compared = []
    if document.variables is not None and any(earlier.variables is None for earlier in views):
        not_compared.append("variables")
    if document.references is not None and any(earlier.references is None for earlier in views):
        not_compared.append("references")
    return msgspec.structs.replace(
        found,
        totals=totals,
        since=before.time,
        since_run=None if document.run_id == before.run_id else before.run_id,
        ended=None if document.variables is None else ended,
        not_compared=not_compared,
    )


def _check(document: Document, before: Document) -> None:
    opened, earlier = (each.opened or "all variables" for each in (document, before))
    if document.variables is not None and before.variables is not None and opened != earlier:
        raise UsageError(f"the view to compare with shows {earlier}; expected one of {opened}")
    if document.run_id == before.run_id:
        return
    script, other = document.script, before.script  # without a name: it was typed, or the view is of an earlier version
    if script and other and script != other:
        raise UsageError(
            f"the view to compare with is of another program, {_short(other)} ({before.run_id}); expected one of "
            f"{_short(script)}, of this run ({document.run_id}) or of an earlier one"
        )
    names, old_names = (sorted({row.mesh for row in each.ranks}) for each in (document, before))
    if not set(names) & set(old_names):
        raise UsageError(
            f"the view to compare with is of another program ({before.run_id}), whose meshes are "
            f"{', '.join(old_names) or 'none'}; expected one of this program ({document.run_id}), or of an earlier "
            f"run of it, with {', '.join(names) or 'a mesh'}"
        )


def _short(script: str) -> str:
    return escaped_line(cut(script, _SCRIPT_MAX))


def _grown_since(document: Document, before: Document, word: str) -> Document:
    """Return a document with a growth, called ``word``; for variables also what has ended."""
    same_run = document.run_id == before.run_id
    old_ranks = {_address(row, same_run): row for row in before.ranks}
    ranks = []
    restarted = set()
    for row in document.ranks:
        address = _address(row, same_run)
        old = old_ranks.get(address)
        if old is not None and same_run and old.pid != row.pid:
            restarted.add(address)
            ranks.append(msgspec.structs.replace(row, restarted=True))
        elif old is not None and row.rss is not None and old.rss is not None:
            ranks.append(msgspec.structs.replace(row, **{word: row.weight - old.weight}))
        else:
            ranks.append(row)
    found = msgspec.structs.replace(document, ranks=ranks, ended=[])
    if document.variables is not None and before.variables is not None:
        variables, ended = _of_variables(document, before, word, same_run, restarted)
        found = msgspec.structs.replace(found, variables=variables, ended=ended)
    # If references were requested by name, the others have not ended.
    if all(each.references is not None and each.holding is None for each in (document, before)):
        return _of_references(found, before, word)
    return found


def _of_variables(
    document: Document, before: Document, word: str, same_run: bool, restarted: Set[tuple[str, int]]
) -> tuple[list[VariableRow], list[str]]:
    names = {row.mesh_id: row.mesh for each in (document, before) for row in each.ranks}

    def key(name: Name, rank: int) -> tuple[tuple[str, int], tuple[str, ...]]:
        mesh_id, *rest = name
        return (mesh_id if same_run else names.get(mesh_id, ""), rank), tuple(rest)

    told = _told(before, same_run) - restarted
    old_sizes = {key(name, rank): (name, size) for name, rank, size in entries(before.variables or ())}
    current = []
    for name, rank, size in entries(document.variables or ()):
        known = key(name, rank)
        _, old = old_sizes.pop(known, (name, None))
        if known[0] in told:
            size = _grown(size, old, word)
        current.append((name, msgspec.structs.replace(size, ranks=(rank,))))
    still_tell = _told(document, same_run) - restarted
    ended = {name[3] for (rank_, _), (name, size) in old_sizes.items() if rank_ in still_tell and size.held > _ENDED}
    return folded(current), sorted(ended)


def _told(document: Document, same_run: bool) -> set[tuple[str, int]]:
    """Return the ranks whose variables the document contains, and the script."""
    script = {("", -1) for row in document.processes if row.unique is not None}
    return script | {_address(row, same_run) for row in document.ranks if row.unique is not None}


def _address(row: RankRow, same_run: bool) -> tuple[str, int]:
    return row.mesh_id if same_run else row.mesh, row.rank


def _grown(size: SizeRow, old: SizeRow | None, word: str) -> SizeRow:
    """Return a size with its growth, called ``word``, and whether that is a lower bound, as far as it is known."""
    if old is None:
        least = size.held
    elif size.exact and old.exact:
        return msgspec.structs.replace(size, **{word: size.held - old.held})
    else:
        # An estimate of now gives no growth: the difference would have the error of both estimates.
        then = old.held if old.exact else old.estimate
        least = 0 if then is None else size.held - then
        if least <= 0:
            return size
    exact = None if old is None and size.exact else False
    return msgspec.structs.replace(size, **{word: least, f"{word}_exact": exact})


def _of_references(document: Document, before: Document, word: str) -> Document:
    """Return a document whose references have a growth in bytes, called ``word``.

    References are identified by the line that put them, their owner and holders, and their size; which one is which
    does not matter. A hundred that were released and a hundred new ones of the same line are no growth, and neither is
    one that changes its holder.

    ``references_ended`` gets the rows of which nothing is left, with their growth, and a count of 0. If the earlier
    answer has left out references, none counts as new; if the current one has, none counts as ended.
    """
    same_run = document.run_id == before.run_id
    now = _by_key(document.references or (), document, same_run)
    old = _by_key(before.references or (), before, same_run)
    ended = _by_key(document.references_ended or (), document, same_run)
    change = {key: _count(now.get(key, ())) - _count(old.get(key, ())) for key in {**now, **old}}
    _settle(change)
    every = before.references_left_out is None or not before.references_left_out.count
    references = [
        msgspec.structs.replace(row, **{word: 0 if place else change[key] * row.size}) if every or key in old else row
        for key, rows in now.items()
        for place, row in enumerate(rows)
    ]
    found = msgspec.structs.replace(document, references=references)
    if document.references_left_out is not None and document.references_left_out.count:
        return found
    gone = {key: rows for key, rows in old.items() if key not in now and change[key]}
    rows_ended = [
        msgspec.structs.replace(rows[0], count=0, **{word: change.get(key, 0) * rows[0].size})
        for key, rows in {**gone, **ended}.items()
    ]
    return msgspec.structs.replace(found, references_ended=rows_ended)


def _by_key(rows: Iterable[ReferenceRow], document: Document, same_run: bool) -> dict[_Key, list[ReferenceRow]]:
    return by_key((_key(row, document, same_run), row) for row in rows)


def _count(rows: Sequence[ReferenceRow]) -> int:
    return sum(row.count for row in rows)


def _settle(change: dict[_Key, int]) -> None:
    """Remove references that have only changed their holder: one row has fewer, and another one has more."""
    origins = by_key((key[:-1], key) for key in change)
    for keys in origins.values():
        moved = min(sum(max(0, sign * change[key]) for key in keys) for sign in (1, -1))
        for sign in (1, -1):
            left = moved
            for key in keys:
                part = min(left, max(0, sign * change[key]))
                change[key] -= sign * part
                left -= part


def _key(row: ReferenceRow, document: Document, same_run: bool) -> _Key:
    """Return the identity of a row, the holders last. Pids mean nothing in another run."""

    def who(pid: int) -> Hashable:
        if same_run:
            return pid
        kinds = (each.kind for each in document.processes if each.pid == pid)
        return document.holders.get(str(pid)) or next(kinds, "")

    holders = frozenset(who(pid) for pid, _ in row.holders)
    return row.host, row.kind, row.disk, row.site, row.size, who(row.owner), holders
