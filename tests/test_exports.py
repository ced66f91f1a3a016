"""What meshrt offers is there: every ``__all__``, the lazy facade, and errors that can be sent to another process."""

from __future__ import annotations

import ast
import copy
import importlib
import importlib.util
import inspect
import pickle
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import meshrt
from meshrt import errors
from meshrt.errors import RankPlace, RemoteException

__all__: list[str] = []

ROOT = Path(__file__).resolve().parent.parent

#: Modules, and what is below them, that need a package of an extra.
NEEDS = {"meshrt.top.screen": "textual", "meshrt.top.serving": "textual_serve"}
MODULES = sorted(
    name
    for path in (ROOT / "meshrt").rglob("*.py")
    for name in [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")]
    if path.name != "__main__.py"
    and all(importlib.util.find_spec(need) for prefix, need in NEEDS.items() if name.startswith(prefix))
)


# ---- __all__ and the facade ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_names_in_all_exist(name: str) -> None:
    module = importlib.import_module(name)
    missing = [exported for exported in module.__all__ if not hasattr(module, exported)]
    assert not missing, f"{module.__file__}: __all__ names what the module does not have: {', '.join(missing)}"


def test_the_facade_lists_what_it_resolves() -> None:
    listed = {
        name
        for name in dir(meshrt)
        if not name.startswith("_") and (callable(getattr(meshrt, name)) or not _is_module(getattr(meshrt, name)))
    }
    assert listed == {name for name in meshrt.__all__ if not name.startswith("_")}


def _is_module(value: object) -> bool:
    return isinstance(value, types.ModuleType)


def test_type_checkers_see_the_facade() -> None:
    """The names imported under ``TYPE_CHECKING`` are those that are resolved at run time."""
    tree = ast.parse((ROOT / "meshrt" / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    bound_now = {name for name in meshrt.__all__ if name in _bound_at_import(tree)}
    assert seen | bound_now == set(meshrt.__all__)


def _bound_at_import(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return names


@pytest.mark.parametrize("name", meshrt.__all__)
def test_the_facade_gives_what_its_module_exports(name: str) -> None:
    value = getattr(meshrt, name)
    home = getattr(value, "__module__", "") if inspect.isclass(value) or inspect.isroutine(value) else ""
    if home.startswith("meshrt."):
        assert name in importlib.import_module(home).__all__, f"{home} does not export {name}"


def test_the_facade_refuses_what_it_does_not_have() -> None:
    name = "no_such_name"
    with pytest.raises(AttributeError, match=name):
        getattr(meshrt, name)


# ---- errors ----------------------------------------------------------------------------------------------------------

PLACE = RankPlace("m1", "trainer", 5, (("hosts", 1), ("gpus", 1)), "node7", 4242)
OTHER = RankPlace("m1", "trainer", 6, (("hosts", 1), ("gpus", 2)), "node7", 4243)
REMOTE = RemoteException(
    "ValueError",
    "bad batch",
    "Traceback (most recent call last):\n  ...\nValueError: bad batch\n",
    notes=("step 3",),
    cause=RemoteException("KeyError", "'x'", ""),
)


class Unpicklable(Exception):
    """An exception that cannot be sent, as user code has them."""

    def __init__(self) -> None:
        super().__init__(lambda: None)


def plain(cls: type[errors.MeshError]) -> list[errors.MeshError]:
    return [cls("something is wrong"), cls()]


def selection_error(cls: type[errors.SelectionError]) -> list[errors.MeshError]:
    return [
        cls("no dimension 'tp'", text="ranks(tp=1)", span=(6, 8), expected=("hosts", "gpus")),
        cls("the mesh has 4 ranks"),
    ]


def actor_error(cls: type[errors.ActorError]) -> list[errors.MeshError]:
    return [
        cls(PLACE, "step", REMOTE, ValueError("bad batch")),
        cls(PLACE, "step", REMOTE, Unpicklable()),
        cls(PLACE, "__init__", RemoteException("E", "", "")),
    ]


def supervision_error(cls: type[errors.SupervisionError]) -> list[errors.MeshError]:
    return [cls(PLACE), cls(PLACE, endpoint="step", may_have_run=False, log_tail=["a", "b"], others=[OTHER])]


def process_died(cls: type[errors.ProcessDied]) -> list[errors.MeshError]:
    return [
        cls(PLACE, exit_code=3),
        cls(PLACE, signal=9, hint="the out-of-memory counter rose", endpoint="step", others=[OTHER]),
        cls(PLACE, signal=64, stack="Fatal Python error: Segmentation fault", log_tail=("a",)),
    ]


def link_lost(cls: type[errors.LinkLost]) -> list[errors.MeshError]:
    return [cls(PLACE), cls(PLACE, hint="could not be connected to: Too many open files", endpoint="step")]


def disconnected(cls: type[errors.Disconnected]) -> list[errors.MeshError]:
    return [cls("program 7 (python train.py) has ended", "trainer.step()", may_have_run=True), cls("it", "trainer")]


def call_timeout(cls: type[errors.CallTimeout]) -> list[errors.MeshError]:
    return [cls("trainer.step()", 2.5, [PLACE, OTHER], 16), cls("trainer.step()", 1, [PLACE], 16)]


def call_cancelled(cls: type[errors.CallCancelled]) -> list[errors.MeshError]:
    return [cls("trainer.step()", [PLACE, OTHER], 16), cls("trainer.step()", [PLACE], 1)]


def limit_reached(cls: type[errors.LimitReached]) -> list[errors.MeshError]:
    return [cls("trainer.step", 8)]


def store_full(cls: type[errors.StoreFull]) -> list[errors.MeshError]:
    return [cls(3 << 20, 4 << 20, 2 << 20, "the limit")]


def mesh_busy(cls: type[errors.MeshBusy]) -> list[errors.MeshError]:
    return [cls(PLACE, "step", 65 << 20, 64 << 20), cls(PLACE, "step", 65 << 20, 64 << 20, [OTHER])]


def store_timeout(cls: type[errors.StoreTimeout]) -> list[errors.MeshError]:
    return [cls("node1", 7, 10.0, since=10**18, stopped=True), cls("", 7, 0.5, since=0, stopped=False)]


#: How instances of each class are made. A class that inherits its constructor uses the entry of its nearest base.
SAMPLES: dict[type[errors.MeshError], Callable[..., list[errors.MeshError]]] = {
    errors.MeshError: plain,
    errors.SelectionError: selection_error,
    errors.ActorError: actor_error,
    errors.SupervisionError: supervision_error,
    errors.ProcessDied: process_died,
    errors.LinkLost: link_lost,
    errors.HostLost: link_lost,
    errors.Disconnected: disconnected,
    errors.CallCancelled: call_cancelled,
    errors.CallTimeout: call_timeout,
    errors.LimitReached: limit_reached,
    errors.MeshBusy: mesh_busy,
    errors.StoreFull: store_full,
    errors.StoreTimeout: store_timeout,
}

ERRORS = sorted(
    (cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, BaseException)),
    key=lambda cls: cls.__name__,
)


def samples(cls: type[errors.MeshError]) -> list[errors.MeshError]:
    """Instances of ``cls``, which must not have a constructor that the table does not know."""
    known = next(base for base in cls.__mro__ if base in SAMPLES)
    own = [base for base in cls.__mro__ if base.__module__ == errors.__name__ and "__init__" in vars(base)]
    assert not own or issubclass(known, own[0]), f"{cls.__name__} has a constructor of its own; add it to SAMPLES"
    return SAMPLES[known](cls)


def test_every_error_is_public_and_has_one_root() -> None:
    for cls in ERRORS:
        assert issubclass(cls, errors.MeshError), f"{cls.__name__} is no MeshError"
        assert cls.__name__ in errors.__all__, f"{cls.__name__} is missing in errors.__all__"
        assert cls.__doc__, f"{cls.__name__} does not say when it is raised"


def test_every_error_of_meshrt_is_in_errors() -> None:
    for name in MODULES:
        importlib.import_module(name)
    found = [errors.MeshError]
    for cls in found:
        found += cls.__subclasses__()
    strays = {cls for cls in found if cls.__module__.startswith("meshrt.") and cls.__module__ != errors.__name__}
    assert not strays, f"defined outside meshrt/errors.py: {strays}"


def by_pickle(protocol: int) -> Callable[[errors.MeshError], errors.MeshError]:
    def send(error: errors.MeshError) -> errors.MeshError:
        received = pickle.loads(pickle.dumps(error, protocol))
        assert isinstance(received, errors.MeshError)
        return received

    return send


COPIES: dict[str, Callable[[errors.MeshError], errors.MeshError]] = {
    **{f"pickle {protocol}": by_pickle(protocol) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)},
    "copy": copy.copy,
}


@pytest.mark.parametrize("via", COPIES)
@pytest.mark.parametrize("cls", ERRORS)
def test_errors_survive_pickling(cls: type[errors.MeshError], via: str) -> None:
    for error in samples(cls):
        error.add_note("seen by rank 3")
        again = COPIES[via](error)
        assert type(again) is cls
        assert str(again) == str(error)
        assert again.args == error.args
        # The user's own exception object may be lost on the way; everything else is carried.
        assert {**vars(again), "exception": None} == {**vars(error), "exception": None}
        assert again.__notes__ == ["seen by rank 3"]


@pytest.mark.parametrize("cls", [errors.CallTimeout, errors.StoreTimeout])
def test_a_time_out_is_no_error_of_the_system(cls: type[errors.MeshError]) -> None:
    """A TimeoutError is an OSError, which finds a number and a text in two arguments."""
    for error in samples(cls):
        assert isinstance(error, OSError) and (error.errno, error.strerror) == (None, None)


def test_a_lossy_error_is_seen() -> None:
    class Lossy(errors.MeshError):
        def __reduce__(self) -> tuple[object, ...]:
            return errors.MeshError, ("something else",)

    again = COPIES["copy"](Lossy("a fact"))
    assert (type(again), str(again)) != (Lossy, "a fact")
    with pytest.raises(AssertionError):
        test_errors_survive_pickling(Lossy, "copy")
