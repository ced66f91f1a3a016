"""Programs at a pseudo-terminal, as a person has them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pexpect

from tests.debug.harness import stops_in
from tests.support.programs import environment

__all__ = ["SECONDS", "Screen", "screen"]

SECONDS = 30
#: Without its blank: a terminal is told to move on instead.
PROMPT = "meshrt_dbg>"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>78]|\x1b\][^\x07]*\x07|\r")


class Screen:
    """What a person sees, and where they type."""

    def __init__(self, child: Any) -> None:
        self.child = child
        self.seen = ""

    def sees(self, *texts: str) -> str:
        """Wait for ``texts``, in this order; returns everything shown until then."""
        shown = ""
        for text in texts:
            self._until([text], f"{text!r} is not seen, but: {shown!r} and then")
            before, _, self.seen = self.seen.partition(text)
            shown += before + text
        return shown

    def sees_stops(self, count: int, actor: str, place: str) -> str:
        """Wait for the notices of ``count`` stops at ``place``, as `Person.announced`; returns all shown until then."""
        shown = ""
        while stops_in(shown, actor) < count:
            shown += self.sees(f" stopped at {place}")
        return shown

    def sees_all(self, *texts: str) -> None:
        """Wait for ``texts``, in whatever order; nothing more is known of what was shown until then."""
        self._until(texts, f"not all of {texts} is seen, but:")
        self.seen = ""

    def _until(self, texts: Sequence[str], problem: str) -> None:
        while not all(text in self.seen for text in texts):
            if self.child.expect([r".+", pexpect.TIMEOUT, pexpect.EOF], timeout=SECONDS):
                raise AssertionError(f"{problem} {self.seen!r}")
            self.seen = _ESCAPES.sub("", self.seen + self.child.after)

    def types(self, line: str) -> None:
        """Type ``line`` and Enter."""
        self.child.send(line + "\r")

    def ends(self) -> str:
        """Wait for the end; returns the rest of what is shown."""
        self.child.expect(pexpect.EOF, timeout=SECONDS)
        self.child.wait()
        return self.seen + _ESCAPES.sub("", self.child.before)

    @property
    def code(self) -> int | None:
        """The exit code."""
        self.child.close()
        return self.child.exitstatus  # type: ignore[no-any-return]


@contextmanager
def screen(*arguments: str, cwd: Path | str | None = None, **env: str) -> Iterator[Screen]:
    """Run ``python *arguments`` at a terminal of its own."""
    child = pexpect.spawn(
        sys.executable,
        list(arguments),
        cwd=None if cwd is None else str(cwd),
        env=environment(TERM="xterm", PROMPT_TOOLKIT_NO_CPR="1", **env),
        dimensions=(50, 140),
        encoding="utf-8",
        timeout=SECONDS,
    )
    child.delaybeforesend = None
    try:
        yield Screen(child)
    finally:
        child.close(force=True)
