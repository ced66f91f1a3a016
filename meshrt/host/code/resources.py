"""Files of fetched packages, for `importlib.resources` and `pkgutil.get_data`."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from importlib.resources.abc import Traversable, TraversableResources
from typing import IO, Any

from meshrt.host.code.asking import Asks, NoAnswerError
from meshrt.wire.code import Code

__all__ = ["PackageFiles", "RootFile", "read_file"]


def _ask(asker: Asks, package: str, file: str) -> Code:
    try:
        return asker.ask(package, file)
    except NoAnswerError as error:
        raise OSError(errno.ETIMEDOUT, str(error), file) from None


def read_file(asker: Asks, package: str, file: str) -> bytes:
    """Return a file of a package. Raises OSError."""
    code = _ask(asker, package, file.replace(os.sep, "/"))
    if code.kind == "file" and code.data is not None:
        return code.data
    if code.kind == "directory":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file)
    if code.kind == "refused":
        raise OSError(errno.EACCES, code.why, file)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)


class RootFile(Traversable):
    """A file or a directory of a package, at the root.

    Args:
        asker: Asks the root.
        package: Its full name.
        file: The path within, with ``/``; ".": the package itself.
    """

    def __init__(self, asker: Asks, package: str, file: str = ".") -> None:
        self._asker = asker
        self._package = package
        self._file = file

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self._package.rpartition(".")[2] if self._file == "." else self._file.rpartition("/")[2]

    def iterdir(self) -> Iterator[RootFile]:
        """Yield what is in the directory. Raises OSError."""
        code = _ask(self._asker, self._package, self._file)
        if code.kind != "directory":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._file)
        for name in code.places or ():
            yield self / name.rstrip("/")

    def is_dir(self) -> bool:
        """Whether it is a directory. Raises OSError."""
        return _ask(self._asker, self._package, self._file).kind == "directory"

    def is_file(self) -> bool:
        """Whether it is a file. Raises OSError."""
        return _ask(self._asker, self._package, self._file).kind in ("file", "refused")

    def joinpath(self, *descendants: str | os.PathLike[str]) -> RootFile:
        """Return what is below."""
        parts = [part for each in descendants for part in os.fspath(each).split("/") if part not in ("", ".")]
        file = "/".join([*([] if self._file == "." else [self._file]), *parts])
        return RootFile(self._asker, self._package, file or ".")

    def __truediv__(self, child: str | os.PathLike[str]) -> RootFile:
        return self.joinpath(child)

    def read_bytes(self) -> bytes:
        """Return its content. Raises OSError."""
        return read_file(self._asker, self._package, self._file)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Return its content as text. Raises OSError, UnicodeDecodeError."""
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def open(self, mode: str = "r", *args: Any, **kwargs: Any) -> IO[Any]:
        """Return a file of its content, to read. Raises OSError."""
        data = io.BytesIO(self.read_bytes())
        return data if "b" in mode else io.TextIOWrapper(data, *args, **{"encoding": "utf-8", **kwargs})

    def __repr__(self) -> str:
        return f"RootFile({self._package!r}, {self._file!r})"


class PackageFiles(TraversableResources):
    """The files of one package."""

    def __init__(self, asker: Asks, package: str) -> None:
        self._root = RootFile(asker, package)

    def files(self) -> RootFile:
        """Return its directory."""
        return self._root
