"""The keys of an attach request for the router, and their checks. Keys of debugpy are passed on to the engines.

``meshToken`` proves who attaches at a port. The router itself sets ``meshRank``, ``meshSession`` and ``meshSocket``, in
what it has an IDE start for one rank.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Literal

import msgspec

from meshrt.conversion import convert
from meshrt.debug.dap.wire import Fields
from meshrt.errors import SelectionError, UsageError
from meshrt.hooks.operations import Data
from meshrt.selection import parse

__all__ = ["Configuration", "for_engine", "for_rank"]

_SET_BY_ROUTER = "set by meshrt dap; meshRanks chooses ranks"
#: Key -> what it is, for complaints.
_KEYS = {
    "meshToken": "the token that meshrt dap prints",
    "meshRun": "the program, by its id or pid, where several run; for meshrt dap --stdio",
    "meshRanks": "the ranks to attach to, as in 'ranks(0:4)' or 'hosts=1'; all if it is missing",
    "meshName": "a mesh, or an actor of one; all meshes if it is missing",
    "meshView": "'sessions' (a session for each rank) or 'threads' (one session, in which ranks are threads)",
    "meshStep": "'one' or 'all': whether a step steps one rank or all that are stopped; for the view 'threads'",
    "meshOnLost": "'resume' or 'stay': what stopped ranks do when the IDE ends without a disconnect",
    "meshRank": _SET_BY_ROUTER,
    "meshSession": _SET_BY_ROUTER,
    "meshSocket": _SET_BY_ROUTER,
}
#: The same, and keys of debugpy that are checked here.
_EXPECTED = {
    **_KEYS,
    "pathMappings": """a list of {"localRoot": "/on/the/IDE's/machine", "remoteRoot": "/where/the/ranks/are"}""",
    "rules": """a list of {"path": "**/generated/**", "include": false}, or with "module" in place of "path\"""",
}
#: Keys whose value may be written as a number.
_TEXTS = ("meshRanks", "meshRun", "meshName", "meshToken")
#: Field -> key, where it is not named alike.
_NAMES = {
    "token": "meshToken", "run": "meshRun", "socket": "meshSocket", "ranks": "meshRanks", "mesh": "meshName",
    "view": "meshView", "step": "meshStep", "on_lost": "meshOnLost", "rank": "meshRank", "session": "meshSession",
    "path_mappings": "pathMappings",
}  # fmt: skip
#: Where an IDE connects to, and what it starts for that, is its own matter.
_OURS = (
    *_KEYS, "connect", "listen", "port", "host", "debugAdapterPath", "debugAdapterPython", "subProcessId", "name",
    "type", "request", "preLaunchTask",
)  # fmt: skip


class _Mapping(Data, frozen=True, rename="camel"):
    local_root: str = ""
    remote_root: str = ""


class _Rule(Data, frozen=True):
    include: object
    path: str | None = None
    module: str | None = None

    def __post_init__(self) -> None:
        if self.path is None and self.module is None:
            raise ValueError("expected path or module")


class Configuration(Data, frozen=True, rename=_NAMES):
    """One attach request, checked.

    Attributes:
        run: The program.
        socket: That of the router that has announced a rank: for the process that an IDE starts.
        rank: A single rank; ``session``: the session of the mesh that it was announced by.
        path_mappings, rules: For the engines, which would end without a message because of invalid ones.
        arguments: Everything, as it came.
    """

    token: str = ""
    run: str = ""
    socket: str = ""
    ranks: str = ""
    mesh: str = ""
    view: Literal["sessions", "threads"] = "sessions"
    step: Literal["one", "all"] = "one"
    on_lost: Literal["resume", "stay"] = "resume"
    rank: tuple[str, int] | None = None
    session: int = 0
    path_mappings: Sequence[_Mapping] = ()
    rules: Sequence[_Rule] = ()
    arguments: Fields = msgspec.field(default_factory=dict)

    @property
    def stay(self) -> bool:
        """Whether ranks stay stopped when the IDE has closed its connection without a disconnect."""
        return self.on_lost == "stay"

    @property
    def local_roots(self) -> list[str]:
        """Directories of the IDE to which ``pathMappings`` maps those of the ranks."""
        return [each.local_root for each in self.path_mappings]

    @classmethod
    def read(cls, arguments: Fields) -> Configuration:
        """Check an attach request. Raises UsageError, which says what was expected."""
        for key in arguments:
            if key.startswith("mesh") and key not in _KEYS:
                close = difflib.get_close_matches(key, _KEYS, n=1)
                hint = f"; {close[0]}?" if close else ""
                keys = ", ".join(known for known, what in _KEYS.items() if what != _SET_BY_ROUTER)
                raise UsageError(f"{key} is not a key of meshrt{hint} There are {keys}")
        given = {key: value for key, value in arguments.items() if key in _EXPECTED}
        for key in _TEXTS:
            if type(given.get(key)) is int:
                given[key] = str(given[key])  # "meshRanks": 3
        try:
            found = convert(given, cls)
        except msgspec.ValidationError as error:
            key = str(error).rpartition("`$.")[2].partition("`")[0].partition("[")[0]
            raise UsageError(f"{key} is {_EXPECTED[key]}; not {arguments[key]!r}") from None
        if found.ranks:
            try:
                parse(found.ranks)
            except SelectionError as error:
                raise UsageError(f"meshRanks is {_KEYS['meshRanks']}: {error}") from None
        return msgspec.structs.replace(found, arguments=dict(arguments))


def for_rank(
    configuration: Configuration, rank: tuple[str, int], number: int, name: str, session: int, socket: str
) -> Fields:
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


def for_engine(arguments: Fields) -> Fields:
    """Return the keys of an attach request that are debugpy's."""
    return {key: value for key, value in arguments.items() if key not in _OURS}
