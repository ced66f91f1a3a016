"""Plays the session of the README: ``debugging.py`` at a terminal of its own, driven line by line as a person would.

Every step waits for what it must show; anything else ends the demo with a non-zero exit code. Needs no terminal itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

PROMPT = "meshrt_dbg> "
AT_13 = "(debugee 13 hosts=3,gpus=1) "
SECONDS_PER_STEP = 60.0

#: What is typed, what must come back (in this order), and the prompt that must follow.
SESSION: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("wait debugee", ("stopped: 16 ranks: 0-15",), PROMPT),
    ("list", ("Actor Name", "Coords", *(f"debugee      |     {rank:2} |" for rank in range(16))), PROMPT),
    ("attach debugee 13", ("my_actors.py(16)to_debug()", "-> breakpoint()"), AT_13),
    ("n", ("-> share = share_of(total, rank)",), AT_13),
    ("s", ("--Call--", "share_of()"), AT_13),
    ("n", ("-> doubled = total * 2",), AT_13),
    ("n", ("-> return doubled + rank",), AT_13),
    ("p doubled, rank", ("(100, 13)",), AT_13),
    ("bt", ("to_debug()", "share_of()"), AT_13),
    ("detach", ("detached from debugee 13",), PROMPT),
    ("cast debugee ranks(0:4) n", ("[0-3]", "-> share = share_of(total, rank)"), PROMPT),
    ("cast debugee ranks(hosts=2:, gpus=(0,3)) p total * 3", ("[8,11-12,15] 150",), PROMPT),
    ("cast debugee ranks(all) p rank // 8", ("[0-7] 0", "[8-15] 1"), PROMPT),
    ("list", ("my_actors.share_of |          8",), PROMPT),
    ("continue", ("16 ranks of debugee (0-15): resumed", "ValueMesh", *(f"[{r}] {100 + r}" for r in range(16))), ""),
)

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]|\r")


class Failed(Exception):
    """The session went another way."""


class Typist:
    """A program at a pseudo-terminal: reads what it shows, types what a person would."""

    def __init__(self, *command: str, cwd: Path) -> None:
        self._fd, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        # A dumb terminal: the same prompt without cursor movements, so that what is shown here reads well anywhere.
        environment = {**os.environ, "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        for name in ("MESHRT_DEBUG_AUTO", "COLUMNS", "LINES"):  # those of this process, which may have no terminal
            environment.pop(name, None)
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, cwd=cwd, env=environment, start_new_session=True
        )
        os.close(terminal)
        self._seen = ""

    def type(self, line: str) -> None:
        """Type ``line`` and Enter."""
        os.write(self._fd, line.encode() + b"\r")

    def expect(self, *texts: str) -> None:
        """Show what comes until all of ``texts`` were in it, in this order."""
        deadline = time.monotonic() + SECONDS_PER_STEP
        for text in texts:
            while (found := self._seen.find(text)) < 0:
                if not self._read(deadline):
                    raise Failed(f"the program has ended, and {text!r} was never shown")
            self._seen = self._seen[found + len(text) :]

    def end(self) -> int:
        """Show what is left, and return the program's exit code."""
        deadline = time.monotonic() + SECONDS_PER_STEP
        while self._read(deadline):
            pass
        return self.process.wait(SECONDS_PER_STEP)

    def close(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._fd)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise Failed(f"nothing more was shown within {SECONDS_PER_STEP:g} s; the last was {self._seen[-200:]!r}")
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # how a pseudo-terminal says that nobody holds its other end
            return False
        text = _ESCAPES.sub("", data.decode("utf-8", "replace"))
        sys.stdout.write(text)
        sys.stdout.flush()
        self._seen += text
        return bool(data)


def main() -> int:
    """Play the session; returns the exit code."""
    print("$ python debugging.py", flush=True)
    typist = Typist(sys.executable, "debugging.py", cwd=Path(__file__).resolve().parent)
    try:
        typist.expect("stopped at my_actors.py:16 (to_debug)", PROMPT)
        for line, shown, prompt in SESSION:
            typist.type(line)
            typist.expect(*shown, *([prompt] if prompt else []))
        code = typist.end()
        if code:
            raise Failed(f"debugging.py ended with exit code {code}")
    except Failed as failure:
        print(f"\ndemo: {failure}", file=sys.stderr)
        return 1
    finally:
        typist.close()
    print("\ndemo: every step showed what it should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
