"""The tables of docs/api.md: each public name, with its parameters and the first sentence of its docstring."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any, NamedTuple

import meshrt
from meshrt import testing
from meshrt.actor.context import ActorInstance
from meshrt.mesh.call import StreamCall

__all__ = ["GROUPS", "Group", "error_rows", "found_name", "is_error", "missing", "rows_of"]


class Group(NamedTuple):
    """Names that belong together.

    Attributes:
        title: What its table is called in the page.
        guide: The page that shows how they are used.
        names: In the order of the table, with the members of a class that users call.
        more: What users write themselves, or set, and what it is.
    """

    title: str
    guide: str
    names: dict[str, str]
    more: dict[str, str] = {}  # noqa: RUF012  # never changed


GROUPS = (
    Group(
        "processes and actors",
        "tutorial.md",
        {
            "proc_mesh": "",
            "ProcMesh": "spawn get stop initialized hosts name",
            "Actor": "",
            "endpoint": "",
            "concurrent_endpoint": "",
            "ActorMesh": "endpoint get stop name",
            "this_proc": "",
            "logs": "",
            "shutdown_context": "",
        },
        {
            "Actor.__cleanup__(exc)": "Optional method of an actor, plain or async: runs when the actor ends; `exc` is "
            "the error that caused the end, or None.",
            "Actor.__supervise__(failure)": "Optional method of an actor, plain or async: decides about a "
            "`MeshFailure` of what this actor has spawned; true means handled.",
        },
    ),
    Group(
        "calls",
        "calls.md",
        {
            "Endpoint": "call call_one choose broadcast stream map reduce options wait_ready",
            "StreamCall": "cancel",
            "Future": "get exception done cancel add_done_callback",
            "ValueMesh": "item values items reduce sum max min numpy",
            "gather": "",
            "wait": "",
            "as_completed": "",
            "nursery": "",
            "Nursery": "start",
        },
    ),
    Group(
        "ports",
        "ports.md",
        {
            "Channel": "open open_ranked",
            "Port": "send exception wait_ready",
            "PortReceiver": "recv close",
            "Accumulator": "accumulate",
        },
    ),
    Group(
        "where code runs",
        "tutorial.md",
        {
            "context": "",
            "Context": "actor_instance message_rank",
            "ActorInstance": "name class_name rank creator abort stop",
            "current_rank": "",
            "current_size": "",
            "current_actor_name": "",
        },
    ),
    Group(
        "names and programs",
        "programs.md",
        {
            "get_or_spawn": "",
            "get_singleton": "",
            "connect": "",
            "RunningProgram": "actors actor close",
            "join": "",
        },
    ),
    Group("large objects", "tutorial.md#large-arrays", {"put": "", "ObjectRef": "get nbytes"}),
    Group(
        "hosts and engines",
        "clusters.md",
        {
            "host_mesh": "",
            "this_host": "",
            "HostMesh": "spawn_procs stop names",
            "LocalEngine": "",
            "ssh": "",
            "CommandEngine": "",
            "RayEngine": "",
        },
    ),
    Group(
        "shapes",
        "grammar.md",
        {
            "MeshTrait": "slice split flatten rename select sizes size extent",
            "Shape": "",
            "Extent": "",
            "Point": "rank",
            "Slice": "",
        },
    ),
    Group(
        "failures",
        "supervision.md",
        {"MeshFailure": "error errors ranks report", "Restart": "", "record": ""},
        {
            "unhandled_fault_hook": "A plain function that a script may set. It is called with each `MeshFailure` that "
            "no owner has handled, on a thread of its own; if it returns, the failure is handled."
        },
    ),
    Group("looking inside", "debugger.md", {"breakpoint": "", "memory": "", "debug_client": ""}),
    Group(
        "tests",
        "testing.md",
        {
            "testing.local": "",
            "testing.local_mesh": "",
            "testing.patch_actor": "",
            "testing.faults": "",
            "testing.kill": "",
            "testing.stop": "",
            "testing.cut": "",
            "testing.call": "",
            "testing.fake_clock": "",
            "testing.FakeClock": "advance time",
            "testing.FaultPlan": "begin happened wait resume end",
        },
    ),
)

_OWN = {"ActorInstance": ActorInstance, "StreamCall": StreamCall}
_SENTENCE = re.compile(r"(.+?\.)(?:\s|$)", re.DOTALL)


class _Executable:
    """What depends on the machine, as the source has it."""

    def __repr__(self) -> str:
        return "sys.executable"


def found_name(name: str) -> Any:
    """Return what a name of `GROUPS` is."""
    if name.startswith("testing."):
        return getattr(testing, name.removeprefix("testing."))
    return _OWN[name] if name in _OWN else getattr(meshrt, name)


def _summary(thing: object) -> str:
    text = " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())
    sentence = _SENTENCE.match(text)
    return (sentence[1] if sentence else text).replace("``", "`").replace("|", "\\|")


def _parameters(thing: Any) -> str:
    signature = inspect.signature(thing)
    shown = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    shown = [each for each in shown if each.name != "self"]
    shown = [each.replace(default=_Executable()) if each.default == sys.executable else each for each in shown]
    return str(signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)).replace("|", "\\|")


def _members(name: str, members: str) -> list[tuple[str, str]]:
    cls, rows = found_name(name), []
    for member in members.split():
        raw = inspect.getattr_static(cls, member)
        called = inspect.isfunction(raw) or isinstance(raw, (classmethod, staticmethod))
        thing = getattr(cls, member) if called else raw
        text = _summary(thing) if called or isinstance(raw, property) else _attribute(cls, member)
        rows.append((f"{name}.{member}{_parameters(thing) if called else ''}", text))
    return rows


def _attribute(cls: type, name: str) -> str:
    """Return what the docstring of a class says about an attribute."""
    found = re.search(
        rf"^    {name}: (.+?)(?=\n {{0,4}}\S|\n\n|\Z)", inspect.getdoc(cls) or "", re.MULTILINE | re.DOTALL
    )
    return "" if found is None else " ".join(found[1].split()).replace("``", "`")


def missing() -> list[str]:
    """Return the public names that are in no table."""
    named = {name for group in GROUPS for name in (*group.names, *group.more)}
    variables = [name for name in inspect.get_annotations(meshrt) if not name.startswith("_")]
    public = [*meshrt.__all__, *variables, *(f"testing.{name}" for name in testing.__all__)]
    return [name for name in dict.fromkeys(public) if name not in named and not is_error(found_name(name))]


def error_rows() -> list[str]:
    """Return the table of errors: each below those that it is one of."""
    found = [thing for name in meshrt.__all__ if is_error(thing := getattr(meshrt, name))]
    rows = [
        (each.__name__, ", ".join(base.__name__ for base in each.__mro__[1:] if _is_public(base)), each)
        for each in found
    ]
    lines = [f"| `{name}` | {bases} | {_summary(each)} |" for name, bases, each in sorted(rows, key=lambda row: row[0])]
    return ["| name | is also | what has happened |", "|---|---|---|", *lines]


def is_error(thing: object) -> bool:
    """Whether something is an error of `meshrt`."""
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _is_public(base: type) -> bool:
    named = base.__name__ in meshrt.__all__ or base.__module__ == "builtins"
    return named and base not in (object, BaseException, Exception, meshrt.MeshError)


def rows_of(title: str) -> list[str]:
    """Return the table of a group."""
    group = next(each for each in GROUPS if each.title == title)
    rows: list[tuple[str, str]] = []
    for name, members in group.names.items():
        thing = found_name(name)
        shows = inspect.isfunction(thing)
        rows += [(f"{name}{_parameters(thing) if shows else ''}", _summary(thing)), *_members(name, members)]
    rows += group.more.items()
    return ["| name | what it is |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in rows)]
