"""Changes of real examples: of their bytes, and of the values that they encode."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgpack

__all__ = ["FORMS", "Form", "Mutator", "packed"]

#: Lengths and numbers at which something changes.
_EDGES = (0, 1, 2, 127, 128, 255, 256, 4096, 65535, 65536, 1 << 20, (1 << 20) + 1, 1 << 31, (1 << 32) - 1)
#: What stands where something else is expected.
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, -(1 << 63), (1 << 63), (1 << 64) - 1, 1 << 20, 0.5, float("nan"), float("inf"),
    "", "x", "0", "a" * 300, "\x00", "../..", "\u202e\x1b[2J", [], [[]], {}, {"t": "ok"}, [0] * 300, [None],
    [-1], {"": 0},
)  # fmt: skip
_DEEP = 60


def packed(value: Any) -> bytes:
    """Return the value as msgpack."""
    data: bytes = msgpack.packb(value, unicode_errors="backslashreplace")
    return data


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(data, strict_map_key=False)


def _as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


Form = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]
#: How examples of a target encode values: read and write. Without one they are bytes, and nothing else.
FORMS: dict[str, Form] = {"msgpack": (_unpacked, packed), "json": (json.loads, _as_json)}


class Mutator:
    """Makes changed examples.

    Args:
        examples: Real ones.
        form: A key of `FORMS`; "" for bytes, "text" for texts.
        words: What is put in between: names, tokens of a grammar.
    """

    def __init__(self, seed: int, examples: Sequence[bytes], form: str = "", words: Sequence[bytes] = ()) -> None:
        self.random = random.Random(seed)
        self.examples = list(examples)
        self._form = FORMS.get(form)
        self._words = [*words, *self.examples] if form == "text" or not form else list(words)

    def next(self) -> bytes:
        """Return a changed example."""
        return self.changed(self.random.choice(self.examples))

    def changed(self, data: bytes, most: int = 1 << 16) -> bytes:
        """Return one example changed, in one place or in several."""
        for _ in range(1 + int(self.random.expovariate(0.6))):
            if self._form is not None and self.random.random() < 0.85:
                data = self._by_value(data, self._form)
            else:
                data = self._by_bytes(data)
        return data[:most]

    def _by_bytes(self, data: bytes) -> bytes:
        rng = self.random
        place, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        how = rng.randrange(8)
        if how == 0 and data:
            place = min(place, len(data) - 1)
            return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
        if how == 1:
            return data[:place] + rng.randbytes(rng.choice((1, 2, 4, 9))) + data[place:]
        if how == 2:
            return data[:place] + data[end:]
        if how == 3:
            return data[:end] + data[place:end] * rng.choice((1, 3)) + data[end:]
        if how == 4:
            number = rng.choice(_EDGES).to_bytes(8, "big")[-rng.choice((1, 2, 4, 8)) :]
            return data[:place] + number + data[place + len(number) :]
        if how == 5 and self._words:
            return data[:place] + rng.choice(self._words) + data[end:]
        if how == 6:
            other = rng.choice(self.examples)
            return data[:place] + other[rng.randint(0, len(other)) :]
        return data[:end]

    def _by_value(self, data: bytes, form: Form) -> bytes:
        read, write = form
        try:
            return write(self._other(copy.deepcopy(read(data))))
        except Exception:  # it is none any more: what another change has made of it
            return self._by_bytes(data)

    def _other(self, value: Any, depth: int = 0) -> Any:
        """Return a value that differs in one place."""
        rng = self.random
        if depth > _DEEP or not isinstance(value, dict | list) or not value or rng.random() < 0.05:
            return self._replaced(value)
        if isinstance(value, list):
            index = rng.randrange(len(value))
            match rng.randrange(6):
                case 0:
                    del value[index]
                case 1:
                    value.insert(index, copy.deepcopy(rng.choice(value)))
                case _:
                    value[index] = self._other(value[index], depth + 1)
            return value
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                del value[key]
            case 1:
                value[rng.choice(("", "t", "id", "n", "x", key))] = value.pop(key)
            case 2:
                value[key] = copy.deepcopy(rng.choice(list(value.values())))
            case _:
                value[key] = self._other(value[key], depth + 1)
        return value

    def _replaced(self, value: Any) -> Any:
        rng = self.random
        if type(value) is int and rng.random() < 0.5:
            return rng.choice((value + 1, value - 1, -value, *_EDGES))
        if type(value) is str and rng.random() < 0.5 and self._words:
            return rng.choice(self._words).decode(errors="replace")
        if type(value) is str and rng.random() < 0.3:
            return value + rng.choice(("x", "\x00", " ", value))
        return rng.choice(_ODD)
