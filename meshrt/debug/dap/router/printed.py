"""The output of ranks as whole lines, each with its rank, as several ranks print to one console of an IDE."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Printed"]

#: Characters of a line that are kept back while it has no end; it is ended then.
_MOST = 4096


class Printed:
    """What one rank prints. Pure.

    Args:
        whose: Returns the prefix of each line.
    """

    def __init__(self, whose: Callable[[], str]) -> None:
        self._whose = whose
        #: The lines that have no end yet, by stream.
        self._begun: dict[str, str] = {}

    def add(self, stream: str, text: str) -> str:
        """Take what has been written to a stream, in parts of any length; return what is to be shown now."""
        *lines, rest = (self._begun.pop(stream, "") + text).split("\n")
        if len(rest) >= _MOST:
            lines, rest = [*lines, rest], ""
        if rest:
            self._begun[stream] = rest
        return "".join(f"{self._whose() if line.strip() else ''}{line}\n" for line in lines)

    def rest(self) -> list[tuple[str, str]]:
        """Return what lacks an end, with its stream: a prompt, or the last words of a rank. It is ended now."""
        begun, self._begun = self._begun, {}
        return [(stream, f"{self._whose()}{text}\n") for stream, text in begun.items()]
