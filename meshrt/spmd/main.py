"""The actor ``main``: its endpoint runs the script, on the main thread of the rank."""

from __future__ import annotations

from collections.abc import Sequence

from meshrt.actor.actor import Actor
from meshrt.actor.endpoint import endpoint
from meshrt.engine.launch.script import Script

__all__ = ["Main"]


class Main(Actor):
    """A script, which runs once."""

    @endpoint
    def run(self, words: Sequence[str]) -> None:
        """Run a script as ``python WORDS`` does.

        Raises:
            SystemExit: The script has ended with another status than 0; it ends the process.
        """
        try:
            Script(words).execute()
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
