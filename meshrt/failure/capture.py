"""An exception of user code as a record: its chain, its stack frames, and the values of their variables.

Code here that may run an override of a user's exception class is ready for every result, also for another exception.
A failure to record never changes the exception itself, which goes on.
"""

from __future__ import annotations

import array
import collections
import enum
import itertools
import linecache
import re
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from meshrt.actor.ending import ActorEnds
from meshrt.actor.errors import type_name
from meshrt.errors import MeshBusy, MeshError, RankPlace
from meshrt.failure.record import ExceptionFacts, Frame, Reference
from meshrt.files import is_library_file
from meshrt.inspect.capping import cap
from meshrt.inspect.exceptions import chain_of, frames_of
from meshrt.inspect.masking import MASK, capped_message, masked, without_secrets, without_tokens
from meshrt.inspect.values import class_name, is_array, module_name
from meshrt.inspect.variables import Variables
from meshrt.inspect.visibility import visible
from meshrt.wire.codec import own_attribute, text_of
from meshrt.wire.messages import ABORTED

__all__ = ["capture", "reference", "references"]

#: Frames of one stack; exceptions of one chain or group; depth of groups in groups.
_MOST_FRAMES = 60
_MOST_LINKED = 10
_DEEPEST = 4
#: Exceptions of a chain that are searched for references to ranks and failures.
_MOST_LOOKED_AT = 100
#: Frames of user code whose variables are kept: the innermost ones; and characters of all of them.
_WITH_LOCALS = 4
_LOCALS_MAX = 12_000
_LOCAL_MAX = 400
_MESSAGE_MAX = 8_000
_NOTES = 10
_LINE_MAX = 300
#: Lines of one statement that are searched for names.
_STATEMENT = 20

#: Values that contain no others, and values that reprlib shows item by item.
_LEAVES = (type(None), bool, int, float, complex, str, bytes, bytearray, range, type(...))
_CONTAINERS = (list, tuple, collections.deque, array.array)
_PLAIN_MODULES = ("pathlib", "datetime", "decimal", "fractions", "uuid", "ipaddress")
#: Classes of local values that are not shown: they do not explain an error.
_NO_VALUES = (ModuleType, FunctionType, BuiltinFunctionType, type)


class _Untouched(Variables):
    """Shows values without running user code, which might block, for example on a device that is lost."""

    def opens(self, value: Any) -> bool:
        """Whether to show the attributes of ``value``: neither a built-in value, nor an array, dict or enum member."""
        kind = type(value)
        known = kind in _LEAVES or kind in _CONTAINERS or module_name(kind) == "builtins"
        shown = is_array(value) or issubclass(kind, (dict, enum.Enum)) or _is_of_python(kind)
        return not (known or shown)

    def repr1(self, x: Any, level: int) -> str:
        """Return the text of a value; the class only, if its text would need user code."""
        kind = type(x)
        if kind in _LEAVES or kind in _CONTAINERS:
            return super().repr1(x, level)
        if is_array(x):
            return _array(x)
        if issubclass(kind, dict):
            return self.repr_dict(x, level)
        if kind in (set, frozenset):
            members = itertools.islice(kind.__iter__(x), self.maxset)
            texts = [self.repr1(member, level - 1) if level > 0 else "..." for member in members]
            return self._joined(texts, kind.__len__(x))
        if issubclass(kind, enum.Enum):
            return f"{class_name(x)}.{object.__getattribute__(x, '_name_')}"
        if _is_of_python(kind):
            return cap(repr(x), self.maxother)
        return f"<{module_name(kind)}.{class_name(x)}>".replace("<__main__.", "<").replace("<builtins.", "<")

    def repr_dict(self, x: Any, level: int) -> str:
        """Return the text of a dict, or of a subclass, in its own order."""
        # Not through methods of subclasses, and not sorted: comparing keys may run user code.
        items = [
            f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" if level > 0 else "..."
            for key, value in itertools.islice(dict.items(x), self.maxdict)
        ]
        return self._joined(items, dict.__len__(x))

    @staticmethod
    def _joined(items: list[str], count: int) -> str:
        return f"{{{', '.join([*items, '...'] if len(items) < count else items)}}}"


def _array(value: Any) -> str:
    facts = [class_name(value), "x".join(map(str, tuple(value.shape))) or "scalar", str(value.dtype)]
    device = str(getattr(value, "device", "cpu"))
    return " ".join(fact for fact in (*facts, "" if device == "cpu" else device) if fact)


def _is_of_python(kind: type) -> bool:
    """Whether a class of the standard library shows its values and contains no user objects."""
    return module_name(kind).partition(".")[0] in _PLAIN_MODULES


def capture(error: BaseException) -> ExceptionFacts:
    """Return the facts of ``error``. Never raises an Exception; at most about 100 kB as plain data."""
    return _facts(error, _Untouched(_LOCALS_MAX), "", 0, [_MOST_LINKED])


def _facts(error: BaseException, variables: Variables, relation: str, depth: int, left: list[int]) -> ExceptionFacts:
    left[0] -= 1
    linked = []
    nearest = next(chain_of(error), None)
    if nearest is not None and left[0] > 0:
        how = "cause" if nearest.explicit else "context"
        linked.append(_facts(nearest.exception, variables, how, depth, left))
    if depth < _DEEPEST:
        members = (member for member in _members(error) if left[0] > 0)
        linked += [_facts(member, variables, "member", depth + 1, left) for member in members]
    entries = frames_of(error, sys.maxsize)
    entries = visible(entries) or entries
    left_out = max(0, len(entries) - _MOST_FRAMES)
    if left_out:
        entries[_MOST_FRAMES // 2 : _MOST_FRAMES // 2 + left_out] = []
    return ExceptionFacts(
        type=_type(error),
        message=capped_message(_message(error), _MESSAGE_MAX),
        bases=_bases(error),
        notes=_notes(error),
        frames=_frames(entries, None if relation else variables),
        left_out=left_out,
        relation=relation,
        linked=tuple(linked),
        about=reference(error) or _suppressed(error),
    )


def _type(error: BaseException) -> str:
    # What others are told of it, by the name that they know.
    return ABORTED if issubclass(type(error), ActorEnds) else type_name(error)


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = BaseExceptionGroup.__dict__["exceptions"].__get__(error)
    return members


def _message(error: BaseException) -> str:
    if issubclass(type(error), MeshError):
        # The first line says what happened; the rest is in the record that this one refers to.
        return text_of(error).partition("\n")[0]
    return text_of(error)


def _bases(error: BaseException) -> tuple[str, ...]:
    mro = type.__dict__["__mro__"].__get__(type(error))
    name = type.__dict__["__name__"].__get__
    return tuple(name(cls) for cls in mro if module_name(cls) == "builtins" and cls is not object)


def _notes(error: BaseException) -> tuple[str, ...]:
    notes = dict.get(own_attribute(error, "__dict__"), "__notes__")
    return tuple(capped_message(text_of(note), _MESSAGE_MAX) for note in notes[:_NOTES]) if type(notes) is list else ()


def _suppressed(error: BaseException) -> Reference | None:
    """Return the subject of an exception that ``raise ... from None`` has left out: it is evidence all the same."""
    if own_attribute(error, "__cause__") is not None or not own_attribute(error, "__suppress_context__"):
        return None
    chain = itertools.islice(chain_of(error, suppressed=True), _MOST_LINKED)
    return next((about for linked in chain if (about := reference(linked.exception)) is not None), None)


def references(error: BaseException, depth: int = 0) -> Iterator[tuple[BaseException, Reference]]:
    """Yield the errors of meshrt in a chain, and in groups, with the failure or rank that each is about."""
    chain = (linked.exception for linked in chain_of(error, suppressed=True))
    for each in itertools.islice(itertools.chain((error,), chain), _MOST_LOOKED_AT):
        about = reference(each)
        if about is not None and about.rank >= 0:
            yield each, about
        if depth < _DEEPEST:
            for member in _members(each):
                yield from references(member, depth + 1)


def reference(error: BaseException) -> Reference | None:
    """Return the failure or rank that an exception of meshrt is about; None for other exceptions.

    `MeshBusy` names a rank that has not failed: who raises it sends without a limit.
    """
    if not issubclass(type(error), MeshError) or issubclass(type(error), MeshBusy):
        return None
    facts: dict[str, Any] = own_attribute(error, "__dict__")
    place, remote = facts.get("place"), facts.get("remote")
    if place is None:
        missing = facts.get("missing") or ()
        place = missing[0] if missing else None
    if not isinstance(place, RankPlace):
        return None
    failure = facts.get("failure", "") if remote is None else getattr(remote, "failure", "")
    return Reference(str(failure), place.mesh_id, place.rank)


def _frames(entries: list[tuple[FrameType, int]], variables: Variables | None) -> tuple[Frame, ...]:
    own = [index for index, (frame, _) in enumerate(entries) if not is_library_file(frame.f_code.co_filename)]
    kept = set(own[-_WITH_LOCALS:]) if variables is not None else set()
    frames = []
    # The innermost frames first: if variables must be left out, they are those of the outer frames.
    for index in range(len(entries) - 1, -1, -1):
        frame, line = entries[index]
        code = frame.f_code
        texts = _locals(frame, line, variables) if variables is not None and index in kept else {}
        source = cap(without_tokens(cap(linecache.getline(code.co_filename, line).strip(), 4 * _LINE_MAX)), _LINE_MAX)
        frames.append(Frame(cap(code.co_filename, _LINE_MAX), line, code.co_name, source, texts))
    return tuple(reversed(frames))


def _locals(frame: FrameType, line: int, variables: Variables) -> dict[str, str]:
    if frame.f_locals is frame.f_globals:
        return {}  # a module: its names are imports and definitions
    hidden = {
        name for name, value in frame.f_locals.items() if masked(str(name)) or issubclass(type(value), _NO_VALUES)
    }
    texts = variables.of(frame, hidden, _named_at(frame.f_code, line))
    return {
        cap(name, _LINE_MAX): MASK if masked(name) else cap(without_secrets(text), _LOCAL_MAX)
        for name, text in texts.items()
        if text or masked(name)
    }


#: A variable, or an attribute of one, in the text of a line.
_NAME = re.compile(r"(?<![\w.])([^\W\d]\w*)(\.[^\W\d]\w*)?")


def _named_at(code: CodeType, line: int) -> frozenset[str]:
    """Return the names in the code of a line: the values that probably explain an error there."""
    ends = (end for begin, end, *_ in code.co_positions() if begin == line and end is not None)
    last = min(max(ends, default=line), line + _STATEMENT)
    text = "".join(linecache.getline(code.co_filename, number) for number in range(line, last + 1))
    names = {name for found in _NAME.finditer(text) for name in (found[0], found[1])}
    # Nearly every line of a method names its object; the attributes that the line names are what matters.
    return frozenset(names - {"self", "cls"})
