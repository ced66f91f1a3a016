"""What cannot be seen of the memory behind an object: by its class, and of the variables of a stack frame.

Classes made by C code hide what they hold, unless they are known to show it. A class shows what it holds if the
collector gets its objects' referents, and ``__sizeof__`` counts all the rest.

An exception that is kept holds the frames of its traceback, and each of these holds the frame that called it. The
variables of a frame that runs, or of a generator, exist whether anything refers to the frame or not: only a frame that
has ended holds its variables.
"""

from __future__ import annotations

import sys
from gc import get_referents
from types import FrameType, MemberDescriptorType

from meshrt.files import RUNTIME_FILES, STDLIB_FILES
from meshrt.inspect.values import bases, module_name

__all__ = ["ended", "hides"]

_POINTER = 8
_HEAP = 1 << 9
#: Modules and classes, most of Python's library, that keep memory of a C library, or do not count all they hold.
_HIDING = frozenset(
    (
        *("zlib", "_bz2", "_lzma", "_zstd", "_hashlib", "_ssl", "pyexpat", "_csv", "_tkinter", "_curses"),
        *("_dbm", "_gdbm", "_io.StringIO", "sqlite3.Connection", "xml.etree.ElementTree.XMLParser"),
        # Unknown to the collector, and they refer to other objects, or have memory that they do not count.
        *("_sre.SRE_Scanner", "_io.IncrementalNewlineDecoder", "_io.BufferedRWPair", "builtins.longrange_iterator"),
        *("decimal.Context", "zoneinfo.ZoneInfo", "posix.DirEntry", "posix.ScandirIterator", "_tokenize.TokenizerIter"),
        "numpy.str_",  # it keeps a copy in another encoding, once that was requested
    )
)
#: Classes of libraries that show what they hold, as do subclasses; arrays and tensors are measured in another way.
_SHOWING = {
    "numpy": ("generic", "dtype", "ufunc", "_ArrayFunctionDispatcher"),
    "torch": ("Size", "device", "dtype", "finfo", "iinfo", "layout", "memory_format"),
}
#: Part of the module names of Cython's functions and coroutines, which can be read like Python's.
_CYTHON = "_cython_"
#: Files that run actors and everything else in a process with an event loop: their frames lead to all objects.
_LOOPS = (RUNTIME_FILES, *(f"{STDLIB_FILES}asyncio/{name}.py" for name in ("base_events", "events", "runners")))


def hides(chain: tuple[type, ...]) -> str:
    """Return the reason why objects of a class, given with its bases, may hold more than can be seen; "" for others."""
    for base in chain:
        if _made_by_c(base) and not _shows(base):
            module = module_name(base)
            if module.partition(".")[0] not in sys.stdlib_module_names:
                return f"lower bound: {module.partition('.')[0]} hides part of its memory"
            return f"lower bound: {module.lstrip('_')}.{_name(base)} hides part of its memory"
    return ""


def _made_by_c(cls: type) -> bool:
    """Whether objects of a class contain more than Python's ``class`` statement adds to those of its base."""
    facts = type.__dict__
    if not int(facts["__flags__"].__get__(cls)) & _HEAP:
        return True
    names = facts["__dict__"].__get__(cls)
    slots = sum(type(each) is MemberDescriptorType for each in list(names.values())) if "__slots__" in names else 0
    added = _POINTER * (slots + ("__dict__" in names) + ("__weakref__" in names))
    size, base = facts["__basicsize__"].__get__, facts["__base__"].__get__(cls)
    return int(size(cls)) > int(size(base)) + added


def _shows(cls: type) -> bool:
    module = module_name(cls)
    package = module.partition(".")[0]
    if module in _HIDING or f"{module}.{_name(cls)}" in _HIDING:
        return False
    if package in _SHOWING:
        return any(module_name(base) == package and _name(base) in _SHOWING[package] for base in bases(cls))
    return package in sys.stdlib_module_names or _CYTHON in package


def _name(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def ended(frame: FrameType) -> bool:
    """Whether the collector sees the variables of a frame, and only this frame holds them."""
    code = frame.f_code
    return not code.co_filename.startswith(_LOOPS) and any(each is code for each in get_referents(frame))
