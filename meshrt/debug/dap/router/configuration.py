"""The keys of an attach request for the router, and their checks. Keys of debugpy are passed on to the engines.

``meshToken`` proves who attaches at a port. The router itself sets ``meshRank``, ``meshSession`` and ``meshSocket``, in
what it has an IDE start for one rank.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from meshrt.errors import SelectionError, UsageError
from meshrt.selection import parse

__all__ = ["Configuration", "for_engine", "for_rank"]

_VIEWS = ("sessions", "threads")
_STEPS = ("one", "all")
_LOST = ("resume", "stay")
_SET_BY_ROUTER = "set by meshrt dap"
#: Key -> what it is, for complaints.
_KEYS = {
    "meshToken": "the token that meshrt dap prints",
    "meshRun": "the program, by its id or pid, where several run; for meshrt dap --stdio",
    "meshRanks": "the ranks to attach to, as in 'ranks(0:4)' or 'hosts=1'; all if it is missing",
    "meshName": "a mesh, or an actor of one; all meshes if it is missing",
    "meshView": "'sessions' (a session for each rank) or 'threads' (one session, in which ranks are threads)",
    "meshStep": "'one' or 'all': whether a step steps one rank or all that stand; for the view 'threads'",
    "meshOnLost": "'resume' or 'stay': what ranks do that stand when the IDE is gone without a goodbye",
    "meshRank": _SET_BY_ROUTER,
    "meshSession": _SET_BY_ROUTER,
    "meshSocket": _SET_BY_ROUTER,
}
#: Where an IDE connects to, and what it starts for that, is its own matter.
_OURS = (
    *_KEYS, "connect", "listen", "port", "host", "debugAdapterPath", "debugAdapterPython", "subProcessId", "name",
    "type", "request", "preLaunchTask",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Configuration:
    """One attach request, checked."""

    token: str
    #: The program, and the socket of the router that has announced a rank: for the process that an IDE starts.
    run: str
    socket: str
    ranks: str
    mesh: str
    view: str
    step: str
    stay: bool
    #: A single rank, and the session of the mesh that it was announced by.
    rank: tuple[str, int] | None
    session: int
    #: Everything, as it came.
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> Configuration:
        """Check an attach request. Raises UsageError, which says what was expected."""
        for key in arguments:
            if key.startswith("mesh") and key not in _KEYS:
                close = difflib.get_close_matches(key, _KEYS, n=1)
                hint = f"; {close[0]}?" if close else ""
                keys = ", ".join(known for known, what in _KEYS.items() if what != _SET_BY_ROUTER)
                raise UsageError(f"{key} is no key of meshrt{hint} There are {keys}")
        ranks = _text(arguments, "meshRanks")
        if ranks:
            try:
                parse(ranks)
            except SelectionError as error:
                raise UsageError(f"meshRanks is {_KEYS['meshRanks']}: {error}") from None
        _check_for_engine(arguments)
        rank = arguments.get("meshRank")
        if rank is not None and not (isinstance(rank, list) and [type(each) for each in rank] == [str, int]):
            raise UsageError("meshRank is set by meshrt dap; meshRanks chooses ranks")
        session = arguments.get("meshSession", 0)
        return cls(
            token=_text(arguments, "meshToken"),
            run=_text(arguments, "meshRun"),
            socket=_text(arguments, "meshSocket"),
            ranks=ranks,
            mesh=_text(arguments, "meshName"),
            view=_one_of(arguments, "meshView", _VIEWS),
            step=_one_of(arguments, "meshStep", _STEPS),
            stay=_one_of(arguments, "meshOnLost", _LOST) == "stay",
            rank=None if rank is None else (rank[0], rank[1]),
            session=session if isinstance(session, int) else 0,
            arguments=dict(arguments),
        )


def _check_for_engine(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for values by which the engines would end without a message."""
    for key, (fits, expected) in _ENGINES.items():
        if key in arguments and not fits(arguments[key]):
            raise UsageError(f"{key} is {expected}; not {arguments[key]!r}")


def _are_mappings(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(key, ""), str) for key in ("localRoot", "remoteRoot"))
        for each in value
    )


def _are_rules(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict)
        and "include" in each
        and [key for key in ("path", "module") if isinstance(each.get(key), str)]
        for each in value
    )


#: Keys of debugpy -> what fits, and what is said of it if it does not.
_ENGINES: dict[str, tuple[Callable[[object], bool], str]] = {
    "pathMappings": (
        _are_mappings,
        """a list of {"localRoot": "/on/the/IDE's/machine", "remoteRoot": "/where/the/ranks/are"}""",
    ),
    "rules": (
        _are_rules,
        """a list of {"path": "**/generated/**", "include": false}, or with "module" in place of "path\"""",
    ),
}


def _text(arguments: Mapping[str, Any], key: str) -> str:
    value = arguments.get(key, "")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # "meshRanks": 3
    if not isinstance(value, str):
        raise UsageError(f"{key} is {_KEYS[key]}; not {value!r}")
    return value


def _one_of(arguments: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = arguments.get(key, choices[0])
    if value not in choices:
        raise UsageError(f"{key} is {_KEYS[key]}; not {value!r}")
    return str(value)


def for_rank(
    configuration: Configuration, rank: tuple[str, int], number: int, name: str, session: int, socket: str
) -> Any:
    """Return the launch configuration with which an IDE attaches to one rank.

    Args:
        number: Tells it from all others where an IDE keeps keys of debugpy only (``subProcessId``).
        socket: Where the process that the IDE starts for it finds this router; "": the IDE connects by itself.
    """
    arguments = dict(configuration.arguments)
    for key in ("meshRanks", "meshName", "meshView", "meshStep"):
        arguments.pop(key, None)
    return {
        **arguments,
        "type": arguments.get("type", "debugpy"),
        "request": "attach",
        "name": name,
        "meshRank": list(rank),
        "meshSession": session,
        "subProcessId": number,
        **({"meshSocket": socket} if socket else {}),
    }


def for_engine(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of an attach request that are debugpy's."""
    return {key: value for key, value in arguments.items() if key not in _OURS}
