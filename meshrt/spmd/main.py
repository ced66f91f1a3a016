"""The actor ``main``: its endpoint runs the script, on the main thread of the rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshrt.engine.launch.script import Script

if TYPE_CHECKING:
    from meshrt.mesh.typed import Actor, endpoint
else:  # a rank need not load meshes for it
    from meshrt.actor.actor import Actor
    from meshrt.actor.endpoint import endpoint

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
