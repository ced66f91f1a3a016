"""Names of classes that came by value."""

from __future__ import annotations

from typing import Any

import cloudpickle

from meshrt.debug.rank.by_value import named_by_value

SCRIPT = """
LIMIT = 5

class Base:
    def limit(self):
        return LIMIT

class Trainer(Base):
    class Inner:
        pass

    def step(self):
        return 1
"""


def test_a_class_by_value_is_known_in_the_globals_of_its_functions() -> None:
    script: dict[str, Any] = {"__name__": "a_script_that_is_no_module"}
    exec(SCRIPT, script)
    sent: Any = cloudpickle.loads(cloudpickle.dumps(script["Trainer"]))
    known = named_by_value(sent)
    assert named_by_value(sent.Inner) == {}, "nobody can type its name alone"
    assert known["LIMIT"] == 5 and known["Base"] is sent.__mro__[1]
    assert sent.step.__globals__["Trainer"] is sent is known["Trainer"]


class Here:
    def step(self) -> int:
        return 1


def test_a_class_of_a_module_is_left_alone() -> None:
    assert named_by_value(Here) == {}
