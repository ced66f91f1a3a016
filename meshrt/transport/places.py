"""Which directories meshrt uses, and whether they are safe.

A place is what a variable of the environment names, or else a usual one. It is used if no other user can change what
its path names (`meshrt.transport.paths`). ``MESHRT_RUNTIME_DIR`` is refused if it is not safe; in place of any other,
such as an ``XDG_RUNTIME_DIR`` that ``su`` or ``sudo -E`` hands down, the next one is used, and the program says why.

The runtime base is the first that is safe of ``$XDG_RUNTIME_DIR/meshrt`` and ``meshrt-UID`` in the directory for
temporary files. Any user may have made the latter: then it is ``meshrt-UID-XXXXXXXX``, with a random end. Commands look
into all of them, and tell those of this user by their owner and mode.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from meshrt.errors import UsageError
from meshrt.transport.paths import NotTrusted, closed_after, open_parent

__all__ = [
    "is_temporary",
    "make_guarded",
    "make_runs_base",
    "make_runtime_base",
    "make_temporary",
    "runs_base",
    "runtime_bases",
    "state_directory",
]

#: Looked for behind `tempfile.gettempdir`, which the environment sets.
_TEMPORARY = ("/tmp", "/var/tmp")

Tell = Callable[[str], object]


def _ignore(_text: str) -> None:
    """Say nothing."""


# -- where programs are found


def runtime_bases() -> list[Path]:
    """Return the directories in which programs of this user may have their runtime directories.

    Raises UsageError: the one that ``MESHRT_RUNTIME_DIR`` names is there, and is not safe.
    """
    asked_for = _asked_for("MESHRT_RUNTIME_DIR")
    if asked_for is not None:
        return [asked_for] if _check_base(asked_for) else []
    return [base for base in (*_usual_bases(), *_private_bases()) if _is_base(base)]


def make_runtime_base(tell: Tell = _ignore) -> Path:
    """Return the one for a program that starts; it is there then, and this user's alone.

    Args:
        tell: Given a line if it is not the usual one.
    Raises:
        UsageError, OSError: There is none.
    """
    base = _runtime_base(tell)
    try:
        with closed_after(_open_guarded(base.parent, make=True)) as parent:
            with contextlib.suppress(FileExistsError):
                os.mkdir(base.name, 0o700, dir_fd=parent)
            _verify(base, os.stat(base.name, dir_fd=parent, follow_symlinks=False))
    except OSError as error:
        why = f"{base} cannot be made: {error.strerror}; set MESHRT_RUNTIME_DIR to a directory of your own"
        raise UsageError(why) from None
    return base


def _runtime_base(tell: Tell) -> Path:
    asked_for = _asked_for("MESHRT_RUNTIME_DIR")
    if asked_for is not None:
        _check_base(asked_for)
        return asked_for
    refused: list[str] = []
    for base in _usual_bases():
        try:
            _check_base(base)
        except UsageError as error:
            refused.append(str(error).partition(";")[0])
        else:
            if refused:
                tell(f"{refused[0]}; {base} is used instead")
            return base
    own = next((base for base in _private_bases() if _is_base(base)), None) or make_temporary(f"meshrt-{os.geteuid()}-")
    if own is None:
        refused.append(f"no directory for temporary files is safe: {_why_not_guarded(Path(_TEMPORARY[0]))}")
        raise UsageError(f"{'. '.join(refused)}. Set MESHRT_RUNTIME_DIR to a directory of your own, of mode 700")
    tell(f"{refused[0]}; {own} is used instead")
    return own


def _usual_bases() -> Iterator[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and (os.access(runtime, os.W_OK) or os.path.isdir(f"{runtime}/meshrt")):
        yield Path(runtime) / "meshrt"
    yield from _temporary_bases()


def _temporary_bases() -> Iterator[Path]:
    bases = [directory / f"meshrt-{os.geteuid()}" for directory in _temporary()]
    # Those to which nothing can be written come last: /tmp may lie on a file system that is read-only.
    yield from sorted(bases, key=lambda base: not (os.access(base.parent, os.W_OK) or os.access(base, os.W_OK)))


def _private_bases() -> Iterator[Path]:
    """Those with a random name."""
    for directory in _temporary():
        with contextlib.suppress(OSError):
            names = _names_like(f"meshrt-{os.geteuid()}-", str(directory), directory.stat().st_mtime_ns)
            yield from (directory / name for name in names)


@functools.lru_cache(maxsize=8)
def _names_like(prefix: str, directory: str, _changed: int) -> list[str]:
    # Once, where a command looks into all run directories: what others keep in /tmp may be many files.
    return sorted(name for name in os.listdir(directory) if name.startswith(prefix))


def _is_base(base: Path) -> bool:
    with contextlib.suppress(OSError, UsageError):
        return _check_base(base)
    return False


def _can_be_base(base: Path) -> bool:
    with contextlib.suppress(UsageError):
        _check_base(base)
        return True
    return False


def _check_base(base: Path) -> bool:
    """Whether a runtime base is there. Raises UsageError, if it, or its path, is not safe."""
    why = _why_not_guarded(base.parent)
    if why:
        raise UsageError(f"{base} is not safe: {why}; set MESHRT_RUNTIME_DIR to another place")
    try:
        _verify(base, base.lstat())
    except FileNotFoundError:
        return False
    return True


def _verify(path: Path, facts: os.stat_result) -> None:
    """Raise UsageError unless ``path`` is a real directory of this user that no other user can enter."""
    if not stat.S_ISDIR(facts.st_mode):
        raise UsageError(f"{path} is not a directory (or a link to one); set MESHRT_RUNTIME_DIR to another place")
    if facts.st_uid != os.geteuid():
        raise UsageError(f"{path} belongs to uid {facts.st_uid}, not to you; set MESHRT_RUNTIME_DIR to another place")
    if facts.st_mode & 0o077:
        raise UsageError(f"{path} is open to other users (mode {stat.S_IMODE(facts.st_mode):o}); chmod 700 it")


# -- what outlives programs


def runs_base() -> Path | None:
    """Return the directory of the run directories (it may not exist yet); None: there is no safe place for it."""
    return _runs_base(_ignore)


def make_runs_base(tell: Tell = _ignore) -> Path | None:
    """Return `runs_base`, which is there then; ``tell`` is given a line if ``MESHRT_RUNS`` is not used.

    Raises OSError: it cannot be made.
    """
    base = _runs_base(tell)
    if base is not None:
        make_guarded(base)
    return base


def _runs_base(tell: Tell) -> Path | None:
    asked_for = _asked_for("MESHRT_RUNS")
    problem = None if asked_for is None else _problem_of(asked_for)
    if asked_for is not None and not isinstance(problem, NotTrusted):
        return asked_for  # what else is wrong with it is found when it is made
    state = state_directory()
    above = state or next(filter(_can_be_base, _temporary_bases()), None)
    base = None if above is None else above / "runs"
    if problem is not None:
        tell(f"MESHRT_RUNS is not safe: {problem.strerror}; {base or 'a temporary directory'} is used instead")
    elif state is None:
        tell(f"no home directory is safe; {base or 'a temporary directory'} is used instead: MESHRT_RUNS names another")
    return base


def state_directory() -> Path | None:
    """Return where meshrt keeps files of this user (it may not exist yet); None: there is no safe place."""
    named = [os.environ.get("XDG_STATE_HOME", "")]
    homes = [os.environ.get("HOME", "")]  # of another user, where sudo has kept it
    with contextlib.suppress(KeyError):  # this user has no entry
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    places = [Path(path) for path in named if os.path.isabs(path)]
    places += [Path(home) / ".local" / "state" for home in homes if os.path.isabs(home)]
    return next((place / "meshrt" for place in places if not _why_not_guarded(place / "meshrt")), None)


def _why_not_guarded(directory: Path) -> str:
    """Return why a directory, or the one in which it would be made, is not guarded; "" if it is."""
    problem = _problem_of(directory)
    return "" if problem is None else problem.strerror or str(problem)


def _problem_of(directory: Path) -> OSError | None:
    above = next(path for path in (directory, *directory.parents) if os.path.exists(path))
    try:
        os.close(_open_guarded(above))
    except OSError as error:
        return error
    return None


def make_guarded(directory: Path) -> None:
    """Make a directory, and those above it, if they are missing. Raises OSError: others can change what is in it."""
    os.close(_open_guarded(directory, make=True))


def _open_guarded(directory: Path, *, make: bool = False) -> int:
    """Return a descriptor of a directory in which no other user can change a name. Raises OSError: it is not such."""
    return open_parent(directory / "-", guarded=True, make=make)[0]


# -- temporary files


def make_temporary(prefix: str) -> Path | None:
    """Make a directory of this user with a random name where files are temporary; None: there is no safe place."""
    for directory in _temporary():
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=directory))
    return None


def is_temporary(path: Path) -> bool:
    """Whether a path lies where old files are removed."""
    return any(path.is_relative_to(directory) for directory in _temporary())


def _temporary() -> list[Path]:
    """The directories for temporary files that are guarded, without repetition."""
    found = dict.fromkeys(map(Path, (_gettempdir(), *_TEMPORARY)))
    return [directory for directory in found if directory.is_dir() and not _why_not_guarded(directory)]


def _gettempdir() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:  # none can be written to
        return _TEMPORARY[0]


def _asked_for(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(os.path.abspath(value)) if value else None
