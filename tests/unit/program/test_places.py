"""Lines of code as text and on the wire."""

from __future__ import annotations

import pytest

from meshrt.errors import ProtocolError
from meshrt.hooks.operations import read
from meshrt.program.places import NOWHERE, Place


def test_a_place_in_words_and_on_the_wire() -> None:
    place = Place("/home/me/train.py", 7, "step")
    assert (str(place), place.module) == ("train.py:7 (step)", "train")
    assert read(Place, ["/home/me/train.py", 7, "step"], "a place") == place
    assert read(Place, [], "a place") == NOWHERE == Place()


@pytest.mark.parametrize("wire", [["a.py", "x", "f"], [3, 3, "f"], 7])
def test_what_is_not_a_place(wire: object) -> None:
    with pytest.raises(ProtocolError, match="a place is not valid"):
        read(Place, wire, "a place")
