"""What the IDE of the tests does with announcements, on an adapter that says what the test wants."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.dap.adapter import Adapter
from tests.dap.ide import Ide


def test_announcements(tmp_path: Path) -> None:
    adapter = Adapter(tmp_path)
    ide = Ide(adapter.address, {"token": "t"})
    try:
        with ThreadPoolExecutor(2) as pool:
            attaching = pool.submit(ide.attach)
            adapter.accept()
            assert adapter.answer("initialize")["supportsStartDebuggingRequest"]
            attach = adapter.received()
            assert attach["arguments"] == {"name": "mesh", "type": "debugpy", "request": "attach", "token": "t"}
            adapter.send(type="event", event="initialized")
            exceptions = adapter.received()
            # Set while the session is being attached, so it is for this one as well.
            setting = pool.submit(ide.set_breakpoints, "/a.py", [3])
            assert adapter.answer("setBreakpoints", breakpoints=[{"verified": True}])["breakpoints"] == [{"line": 3}]
            assert setting.result() == {"mesh": [{"verified": True}]}
            adapter.respond(exceptions)
            adapter.answer("threads", threads=[])
            assert not ide.sessions
            adapter.respond(attach)
            attaching.result()
            assert list(ide.sessions) == ["mesh"]

        # Nobody listens where this one is said to be; the adapter is told, and so is who waits for it.
        nowhere = {"name": "rank 0", "connect": {"host": "127.0.0.1", "port": 1}}
        adapter.send(
            type="request", command="startDebugging", arguments={"request": "attach", "configuration": nowhere}
        )
        answer = adapter.received()
        assert not answer["success"] and "rank 0: ConnectionError: no adapter at ('127.0.0.1', 1)" in answer["message"]
        with pytest.raises(AssertionError, match="could not be attached: rank 0: ConnectionError"):
            ide.children(1)

        # Two of one name cannot be told apart.
        twice = {"request": "attach", "configuration": {"name": "mesh"}}
        adapter.send(type="request", command="startDebugging", arguments=twice)
        assert "there is a session 'mesh' already" in adapter.received()["message"]
    finally:
        ide.kill()
        adapter.close()
