"""Which sources of stack frames an IDE opens as files, and which it asks for."""

from __future__ import annotations

from typing import Any

from meshrt.debug.dap.router.program import Sources


def test_a_file_that_is_here_has_no_number() -> None:
    program: Any = None
    here, elsewhere, typed = [
        {"source": {"path": path, "sourceReference": 3}} for path in (__file__, "/no/x.py", "<in>")
    ]
    Sources(program).note([here, elsewhere, typed, {}])
    numbers = [frame["source"]["sourceReference"] for frame in (here, elsewhere, typed)]
    assert numbers == [0, 3, 3]
