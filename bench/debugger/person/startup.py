"""The start of ``python -m meshrt.debug`` at a terminal, until its prompt is there."""

import os
import select
import subprocess
import sys
import time

__all__ = ["start_to_prompt"]

PROMPT = b"meshrt_dbg>"
WHERE_IS_THE_CURSOR = b"\x1b[6n"
AT_THE_LEFT = b"\x1b[1;1R"
PATIENCE = 30.0


def start_to_prompt(pid: int) -> None:
    """Open the debugger on a program at a pseudo-terminal, and return when the prompt is shown. It is killed then."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "meshrt.debug", "--pid", str(pid)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    try:
        os.close(theirs)
        read_until_prompt(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until_prompt(terminal: int) -> None:
    """Read what is shown, and answer what a terminal is asked."""
    shown = b""
    asked = 0
    deadline = time.monotonic() + PATIENCE
    while PROMPT not in shown:
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0))
        if not ready:
            raise TimeoutError(f"no prompt within {PATIENCE:g} s, only {shown.decode(errors='replace')}")
        try:
            shown += os.read(terminal, 1 << 16)
        except OSError as error:  # its last user has closed it
            raise ConnectionError(f"the debugger has gone; its last words: {shown.decode(errors='replace')}") from error
        if shown.count(WHERE_IS_THE_CURSOR) > asked:
            asked += 1
            os.write(terminal, AT_THE_LEFT)
