"""What ranks answer in the tests of questions to many of them. They import this module, so it imports no test tools."""

from __future__ import annotations

import os
import threading
from itertools import repeat
from pathlib import Path
from typing import Any

from meshrt import Actor, endpoint
from meshrt.transport.process import current_runtime

__all__ = ["Stuck", "serve_questions"]


def serve_questions() -> None:
    """Runs in a rank: operations of a plug-in, as the tests need them."""
    services: Any = current_runtime().tree
    rank = services.rank
    kept: list[Any] = []

    def refuse(body: dict[str, Any]) -> dict[str, Any]:
        raise LookupError("not here")

    def later(body: dict[str, Any], answer: Any) -> None:
        if body.get("turns"):
            services.call_later(body["turns"] * (rank + 1), lambda: answer({"same": "in turn"}, ""))
        elif body.get("thread"):
            threading.Thread(target=answer, args=({"same": "from a thread"}, "")).start()
        elif body.get("seconds"):
            services.call_later(body["seconds"], lambda: answer({"same": "late"}, ""))
            services.call_later(body["seconds"], lambda: answer({"same": "twice"}, ""))
        else:
            kept.append(answer)

    services.operations["test.parity"] = lambda body: {"same": {"odd": rank % 2}, "per": {"rank": rank, "was": body}}
    services.operations["test.plain"] = lambda body: {"answer": 1}
    services.operations["test.pid"] = lambda body: {"pid": os.getpid()}
    services.operations["test.nothing"] = lambda body: None
    services.operations["test.long"] = lambda body: {"same": "x" * body["same"], "per": "y" * body["per"]}
    services.operations["test.refuse"] = refuse
    services.control.deferred["test.later"] = later


class Stuck(Actor):
    """Waits, or keeps the GIL."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def hold_gil(self, inside: str) -> None:
        Path(inside).touch()
        sum(repeat(0, 10**11))
