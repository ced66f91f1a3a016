"""What `put` says of it where a store has no room, and the disk has, or seems to have, none either."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest

from meshrt.errors import StoreFull, StoreTimeout
from meshrt.store.arenas import Arenas
from meshrt.store.store import Store

SILENT = StoreTimeout("node1", 7, 10.0, since=0, stopped=True)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "put() cannot write to a file in /runs either: No space left",
        ),
        (SILENT, "the agent of host node1 (pid 7) has not answered"),
    ],
    ids=["a full disk", "an agent that says nothing"],
)
def test_what_cannot_be_written_to_disk_either(problem: OSError, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(_arenas: Arenas, *_: Any, disk: bool = False, **__: Any) -> Any:
        raise problem if disk else StoreFull(1, 1, 1, "the limit")

    monkeypatch.setattr(Arenas, "write", write)
    store = Store("/nowhere", "/runs", b"", lambda _seconds: 7, lambda _pid: "node1", lambda _seconds, _function: None)
    with pytest.raises(type(problem), match=re.escape(said)) as caught:
        store.put([1], lazy=True, spill=True, site="here")
    assert caught.value.errno == problem.errno
