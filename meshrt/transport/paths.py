"""Paths that another user cannot redirect: each component is opened by the descriptor of the one before it.

A component is trusted if this user, root, or the owner of ``/`` owns it (in a user namespace the machine's root has
another number, and owns ``/``). A link of any other user is never followed. What is *guarded* lies in
directories whose names no other user can change: only trusted users can write to them, or they are sticky.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

__all__ = ["NotTrusted", "closed_after", "in_proc", "is_trusted", "open_parent"]

#: Links that are followed in one path, as the kernel does.
_LINKS_MAX = 40
_PATH = os.O_PATH | os.O_CLOEXEC
_ACL = "system.posix_acl_access"


class NotTrusted(PermissionError):
    """Another user owns a component of a path, or can change what it names."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(errno.EACCES, why, str(path))


def is_trusted(uid: int) -> bool:
    """Whether what belongs to ``uid`` is not another user's."""
    return uid in (0, os.geteuid()) or uid == os.stat("/").st_uid


def in_proc(facts: os.stat_result) -> bool:
    """Whether a file is one of ``/proc``, whose links the kernel makes."""
    try:
        return facts.st_dev == os.stat("/proc/self").st_dev
    except FileNotFoundError:  # not mounted
        return False


@contextlib.contextmanager
def closed_after(descriptor: int) -> Iterator[int]:
    """Context with a descriptor, which is closed at its end."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_parent(path: Path, *, guarded: bool = False, make: bool = False) -> tuple[int, str]:
    """Return a descriptor of the directory that holds what ``path`` names, and the name there; the caller closes it.

    Links of trusted users are followed, a last one too. What has the name may be missing. A link of ``/proc`` to what
    has no path (a pipe) stays one.

    Args:
        guarded: The directories have to be guarded.
        make: Directories that are missing are made, with mode 0700.
    Raises:
        NotTrusted: Of a component, or a directory is not guarded.
        OSError: A component cannot be opened.
    """
    whole = path if path.is_absolute() or not guarded else Path.cwd() / path
    _mount(whole)
    start = "/" if whole.is_absolute() else "."
    shown, names, links = Path(start), deque(_names(whole)), 0
    directory = os.open(start, _PATH | os.O_DIRECTORY)
    try:
        while True:
            if guarded:
                _check_guarded(directory, shown)
            name = names.popleft() if names else "."
            try:
                entry = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=directory)
            except FileNotFoundError:
                if not names:
                    return directory, name
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=directory)
                names.appendleft(name)
                continue
            facts = os.fstat(entry)
            if stat.S_ISLNK(facts.st_mode):
                target = _read_link(entry)
                links += 1
                if not names and in_proc(facts) and not target.is_absolute():
                    return directory, name
                if not is_trusted(facts.st_uid):
                    raise NotTrusted(path, f"{shown / name} is a link of uid {facts.st_uid}, which is not followed")
                if links > _LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                names.extendleft(reversed(_names(target)))
                if not target.is_absolute():
                    continue
                entry, shown = os.open("/", _PATH | os.O_DIRECTORY), Path("/")
            elif not names:
                os.close(entry)
                return directory, name
            else:
                shown /= name
                if not stat.S_ISDIR(facts.st_mode):
                    os.close(entry)
                    raise NotADirectoryError(errno.ENOTDIR, f"{shown} is not a directory", str(path))
            os.close(directory)
            directory = entry
    except BaseException:
        os.close(directory)
        raise


def _names(path: Path) -> list[str]:
    return list(path.parts[1:] if path.is_absolute() else path.parts)


def _mount(path: Path) -> None:
    """Have the kernel mount what is mounted on demand: a descriptor of O_PATH does not."""
    os.path.exists(path)


def _read_link(entry: int) -> Path:
    with closed_after(entry):
        return Path(os.readlink("", dir_fd=entry))


def _check_guarded(directory: int, shown: Path) -> None:
    facts = os.fstat(directory)
    if not is_trusted(facts.st_uid):
        raise NotTrusted(shown, f"{shown} belongs to uid {facts.st_uid}, not to you")
    others = facts.st_mode & 0o002 or (facts.st_mode & 0o020 and not _is_own_group(directory, facts))
    if others and not facts.st_mode & stat.S_ISVTX:
        raise NotTrusted(shown, f"other users can change {shown} (mode {stat.S_IMODE(facts.st_mode):o})")


def _is_own_group(directory: int, facts: os.stat_result) -> bool:
    """Whether the group of a directory is this user's alone: many systems give each user one, of the same name."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(facts.st_gid)
    except KeyError:
        return False
    if group.gr_name != user or set(group.gr_mem) - {user}:
        return False
    try:
        os.getxattr(f"/proc/self/fd/{directory}", _ACL)
    except OSError:
        return True
    return False  # the mode of a group is that of all whom the list names
