"""The growth since an earlier document: of ranks, of their variables, and of references in shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from meshrt.errors import UsageError
from meshrt.escapes import escaped_line
from meshrt.memory.document import NAME, Document, entries, folded, totals_of
from meshrt.memory.refgrowth import add_growth_of_references
from meshrt.show.text import cut

__all__ = ["add_growth", "weight"]

#: Least bytes of a variable that has ended and is listed.
_ENDED = 4096
#: Characters of a program's name in an error: the text of -c may be long.
_SCRIPT_MAX = 200


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
    ranks = found["ranks"]
    if first is not None:
        found = {**_grown_since(found, first, "grown"), "ended": found["ended"]}
        found["since_first"] = first["time"]
    totals = {**totals_of(found), "growth": sum(row.get("growth", 0) for row in ranks)}
    if first is not None:
        totals["grown"] = sum(row.get("grown", 0) for row in found["ranks"])
    found.update(since=before["time"], totals=totals)
    if document["run_id"] != before["run_id"]:
        found["since_run"] = before["run_id"]
    if "variables" not in document:
        del found["ended"]
    asked = [table for table in ("variables", "references") if table in document]
    found["not_compared"] = [table for table in asked if not all(table in earlier for earlier in views)]
    return found


def _check(document: Document, before: Document) -> None:
    opened, earlier = (each.get("opened") or "all variables" for each in (document, before))
    if "variables" in document and "variables" in before and opened != earlier:
        raise UsageError(f"the view to compare with shows {earlier}; expected one of {opened}")
    if document["run_id"] == before["run_id"]:
        return
    scripts = [each.get("script", "") for each in (document, before)]  # "": the view is of an earlier version
    if all(scripts) and scripts[0] != scripts[1]:
        script, other = map(_short, scripts)
        raise UsageError(
            f"the view to compare with is of another program, {other} ({before['run_id']}); expected one of {script}, "
            f"of this run ({document['run_id']}) or of an earlier one"
        )
    names, old_names = (sorted({row["mesh"] for row in each["ranks"]}) for each in (document, before))
    if not set(names) & set(old_names):
        raise UsageError(
            f"the view to compare with is of another program ({before['run_id']}), whose meshes are "
            f"{', '.join(old_names) or 'none'}; expected one of this program ({document['run_id']}), or of an earlier "
            f"run of it, with {', '.join(names) or 'a mesh'}"
        )


def _short(script: str) -> str:
    return escaped_line(cut(script, _SCRIPT_MAX))


def _grown_since(document: Document, before: Document, word: str) -> Document:
    """Return a document with a growth, called ``word``; for variables also ``"ended"``."""
    same_run = document["run_id"] == before["run_id"]
    old_ranks = {_address(row, same_run): row for row in before["ranks"]}
    ranks = []
    restarted = set()
    for row in document["ranks"]:
        address = _address(row, same_run)
        old = old_ranks.get(address)
        if old is not None and same_run and old["pid"] != row["pid"]:
            restarted.add(address)
            ranks.append({**row, "restarted": True})
        elif old is not None and "rss" in row and "rss" in old:
            ranks.append({**row, word: weight(row) - weight(old)})
        else:
            ranks.append(row)
    found: Document = {**document, "ranks": ranks, "ended": []}
    if "variables" in document and "variables" in before:
        found["variables"], found["ended"] = _of_variables(document, before, word, same_run, restarted)
    # If references were requested by name, the others have not ended.
    if all("references" in each and "holding" not in each for each in (document, before)):
        add_growth_of_references(found, before, word)
    return found


def _of_variables(
    document: Document, before: Document, word: str, same_run: bool, restarted: Set[tuple[str, int]]
) -> tuple[list[dict[str, Any]], list[str]]:
    names = {row["mesh_id"]: row["mesh"] for document_ in (document, before) for row in document_["ranks"]}

    def key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
        mesh = entry["mesh_id"] if same_run else names.get(entry["mesh_id"], "")
        return (mesh, entry["rank"], *(entry[word] for word in NAME if word != "mesh_id"))

    told = _told(before, same_run) - restarted
    old_sizes = {key(entry): entry for entry in entries(before["variables"])}
    current = []
    for entry in entries(document["variables"]):
        known = key(entry)
        growth = _grown(entry, old_sizes.pop(known, None), word) if known[:2] in told else {}
        current.append({**entry, **growth})
    still_tell = _told(document, same_run) - restarted
    ended = [entry for known, entry in old_sizes.items() if known[:2] in still_tell and _held(entry) > _ENDED]
    return folded(current), sorted({entry["where"] for entry in ended})


def _told(document: Document, same_run: bool) -> set[tuple[str, int]]:
    """Return the ranks whose variables the document contains, and the script."""
    script = {("", -1) for row in document["processes"] if "unique" in row}
    return script | {_address(row, same_run) for row in document["ranks"] if "unique" in row}


def weight(row: Mapping[str, Any]) -> int:
    """Return the bytes of a rank without shared memory: each shared page that it has read counts in its RSS too."""
    return int(row["rss"] - row.get("shmem", 0) + row.get("store_own", 0) + row.get("store_held", 0))


def _address(row: Mapping[str, Any], same_run: bool) -> tuple[str, int]:
    return row["mesh_id"] if same_run else row["mesh"], row["rank"]


def _held(entry: Mapping[str, Any]) -> int:
    return int(entry["bytes"] + sum((entry.get("devices") or {}).values()))


def _grown(entry: Mapping[str, Any], old: Mapping[str, Any] | None, word: str) -> dict[str, Any]:
    """Return the growth of a variable, called ``word``, and whether it is a lower bound; {} if it is not known."""
    if old is None:
        return {word: _held(entry), **({} if entry["exact"] else {f"{word}_exact": False})}
    if entry["exact"] and old["exact"]:
        return {word: _held(entry) - _held(old)}
    # An estimate of now gives no growth: the difference would have the error of both estimates.
    then = _held(old) if old["exact"] else old.get("estimate")
    least = 0 if then is None else _held(entry) - int(then)
    return {word: least, f"{word}_exact": False} if least > 0 else {}
