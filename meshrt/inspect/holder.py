"""The call that a blocked frame waits in, from its source, as ``self.lock.acquire`` or ``time.sleep``.

Read from the byte code: the loads that begin where the call begins make up the name of what is called. Nothing is known
if the interpreter keeps no columns (``-X no_debug_ranges``).
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType

__all__ = ["holder"]

_LONGEST = 60


@lru_cache(maxsize=512)
def holder(code: CodeType, lasti: int) -> str:
    """Return the dotted name of what the instruction at ``lasti`` calls or enters; "": not known, or neither."""
    if lasti < 0:
        return ""
    # In a frame that has called a Python function, ``lasti`` is after the call instruction, in that one's caches.
    instructions = [instruction for instruction in dis.get_instructions(code) if instruction.offset <= lasti]
    here = instructions.pop() if instructions else None
    position = here.positions if here is not None else None
    if here is None or position is None or position.col_offset is None:
        return ""
    if here.opname in ("SEND", "YIELD_VALUE", "RESUME", "GET_AWAITABLE"):
        return ""
    if here.opname.startswith(("BEFORE_WITH", "BEFORE_ASYNC_WITH")):
        # Its own columns are those of the statement; the context manager was loaded just before.
        position = (instructions[-1].positions if instructions else None) or position
    begin = (position.lineno, position.col_offset)
    names: list[str] = []
    for instruction in instructions:
        at = instruction.positions
        if at is None or (at.lineno, at.col_offset) != begin:
            continue
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF")):
            loaded = instruction.argval
            names = [loaded[0] if isinstance(loaded, tuple) else str(loaded)]
        elif instruction.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and names:
            names.append(str(instruction.argval))
    text = ".".join(names)
    if here.opname.startswith(("BEFORE_WITH", "BEFORE_ASYNC_WITH")):
        text = f"with {text}" if text else "with"
    elif here.opname.startswith("FOR_ITER"):
        text = f"for ... in {text}" if text else "for"
    elif not here.opname.startswith(("CALL", "PRECALL")):
        return ""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + " ..."
