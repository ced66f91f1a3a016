"""What is shown live of the output of ranks: the setting, and its text. One grammar for all places that take it.

::

    setting = "on" | "off" | option { option }             ("," or a blank between two options)
    option  = "ranks(" selection ")"                       only the output of these ranks (docs/grammar.md)
            | "fold=" ( seconds | "off" )                  wait so long for equal lines of other ranks, show them once
            | "limit=" ( lines | "off" )                   at most so many lines a second
            | "level=" ( name | number | "off" )           log records from this level on

An option that is left out is as in "on". Nothing of it is about the log files: they have everything.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from meshrt.errors import SelectionError, UsageError

if TYPE_CHECKING:
    from meshrt.selection import Selection, Shape

__all__ = ["LOGS", "Shown", "parse_shown", "shown_at_start"]

#: The environment variable.
LOGS = "MESHRT_LOGS"
#: Seconds that a line waits for equal ones: a person sees no delay, and ranks that run the same code print within it.
_FOLD = 0.1
_FOLD_MAX = 60.0
_LIMIT_MAX = 1_000_000
_EXPECTED = (
    "expected 'on', 'off', or options such as 'ranks(0) fold=0.5 limit=100 level=info': ranks(...) is a selection, "
    "fold= is seconds or off, limit= is lines a second or off, level= is a level of logging or off"
)
#: By option: what its value is.
_VALUES = {
    "fold": f"a time to wait is a number of seconds up to {_FOLD_MAX:g}, or off",
    "limit": f"a limit is a number of lines from 1 to {_LIMIT_MAX}, or off",
    "level": "a level is a name such as info, a number, or off",
}
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_COUNT = re.compile(r"[0-9]{1,9}")
_WORD = re.compile(r"[^\s,]+")
_BETWEEN = re.compile(r"[\s,]*")


class Shown(msgspec.Struct, frozen=True):
    """A setting that was parsed.

    Attributes:
        text: As it was given.
        nothing: It is "off".
        ranks: Which ones; None: all.
        fold: Seconds that a line waits for equal lines of other ranks; 0: equal lines are not shown as one; None: it is
            not said.
        limit: Lines a second; 0: any number.
        level: For log records of the ranks, instead of the level of the script's root logger; None: that one.
    """

    text: str = "on"
    nothing: bool = False
    ranks: Selection | None = None
    fold: float | None = None
    limit: int = 0
    level: int | None = None

    def wait(self, *, script: bool) -> float:
        """Return the seconds that a line waits for equal ones; 0 for those of a script, unless `fold` is given."""
        return self.fold if self.fold is not None else 0.0 if script else _FOLD

    def members(self, shape: Shape, *, strict: bool = False) -> frozenset[int]:
        """Return the base ranks of a mesh that are shown.

        Args:
            shape: The mesh.
            strict: The setting is for this mesh alone. One for the program shows none of a mesh that has no such rank,
                and all of a mesh that has no such dimension.
        Raises:
            SelectionError: With ``strict``, the mesh has no such rank or dimension.
        """
        if self.nothing:
            return frozenset()
        if self.ranks is None:
            return frozenset(shape.ranks())
        from meshrt.selection import dimensions_of, resolve  # start-up: only where ranks are selected

        if not strict and not dimensions_of(self.ranks) <= set(shape.labels):
            return frozenset(shape.ranks())
        try:
            return frozenset(resolve(self.ranks, shape))
        except SelectionError:
            if strict:
                raise
            return frozenset()


def parse_shown(text: object, whose: str) -> Shown:
    """Return the setting that a text means.

    Args:
        whose: Where it is from, for the error: ``"logs="``, ``"MESHRT_LOGS="``.
    Raises:
        UsageError: It is not in the grammar. The message says what was expected.
    """
    if not isinstance(text, str):
        raise _refused(whose, text, f"a setting is a text, not {type(text).__name__}")
    stripped = text.strip()
    if stripped in ("on", "off"):
        return Shown(stripped, nothing=stripped == "off")
    shown = Shown(stripped)
    seen: set[str] = set()
    position = _skip(text, 0)
    while position < len(text):
        if text.startswith("ranks(", position):
            name = "ranks"
            selection, position = _selection(text, position, whose)
            shown = replace(shown, ranks=selection)
        else:
            found = _WORD.match(text, position)
            word = "" if found is None else found[0]
            name, _, value = word.partition("=")
            shown = _with_option(shown, name, value, word, whose, text)
            position += len(word)
        if name in seen:
            raise _refused(whose, text, f"{name} is given twice")
        seen.add(name)
        position = _skip(text, position)
    if not seen:
        raise _refused(whose, text, "it is empty")
    return shown


def shown_at_start() -> Shown:
    """Return the setting that a program begins with. Raises UsageError: the environment variable has an invalid one."""
    text = os.environ.get(LOGS, "")
    return parse_shown(text, f"{LOGS}=") if text else Shown()


def _skip(text: str, position: int) -> int:
    found = _BETWEEN.match(text, position)
    return position if found is None else found.end()


def _selection(text: str, position: int, whose: str) -> tuple[Selection, int]:
    from meshrt.selection import names_states, parse_prefix  # start-up: only where ranks are selected

    try:
        _, end = parse_prefix(text, position)
        parsed, _ = parse_prefix(text[position:end])  # what an error shows later is the selection alone
        known = not names_states(parsed)
    except SelectionError as error:
        raise UsageError(f"{whose}{text!r}: {error}") from None
    if not known:
        raise _refused(whose, text, "a selection of output cannot name states of ranks, only ranks and dimensions")
    return parsed, end


def _with_option(shown: Shown, name: str, value: str, word: str, whose: str, text: str) -> Shown:
    off = value == "off"
    if name == "fold" and (off or (_NUMBER.fullmatch(value) and float(value) <= _FOLD_MAX)):
        return replace(shown, fold=0.0 if off else float(value))
    if name == "limit" and (off or (_COUNT.fullmatch(value) and 0 < int(value) <= _LIMIT_MAX)):
        return replace(shown, limit=0 if off else int(value))
    if name == "level" and (off or (level := _level(value)) is not None):
        return replace(shown, level=None if off else level)
    if name in _VALUES:
        raise _refused(whose, text, f"{word!r}: {_VALUES[name]}")
    if word in ("on", "off"):
        raise _refused(whose, text, f"{word!r} cannot be combined with options")
    raise _refused(whose, text, f"{word!r} is not an option")


def _level(value: str) -> int | None:
    import logging  # start-up: only where a level is given

    return int(value) if _COUNT.fullmatch(value) else logging.getLevelNamesMapping().get(value.upper())


def _refused(whose: str, text: object, why: str) -> UsageError:
    return UsageError(f"{whose}{text!r}: {why}; {_EXPECTED}")
