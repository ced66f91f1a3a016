"""How ranks join a session in which they are threads: a limited number at a time; none waits for a silent one.

::

    waiting --its turn--> asked --answers--> loading --engine, settings--> ready
                            '--silent: the turn is the next one's, it is shown as such--^
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping

from meshrt.debug.dap.router.channels import SILENT_SECONDS
from meshrt.debug.dap.router.configuration import Configuration, for_engine
from meshrt.debug.dap.router.members import RUNNING, SILENT, Member
from meshrt.debug.dap.router.ranks import Key
from meshrt.debug.dap.router.settings import Settings
from meshrt.debug.dap.wire import Fields
from meshrt.errors import MeshError

__all__ = ["Joining"]

#: Engines that are loaded at once.
_AT_ONCE = 64
#: Seconds until an attach is answered: ranks that have not joined by then join later. And seconds without news of any
#: rank after which it is answered earlier, if the missing ranks have not answered at all.
_PATIENCE = 5.0
_QUIET = 0.5


class Joining:
    """Of one session. On the router's loop.

    Args:
        members: The ranks, by key; a member that has been replaced by the time of its turn is skipped.
        settings: What the IDE has set.
        silent: Called with a rank that does not answer.
        session: Its number.
    """

    def __init__(
        self,
        members: Mapping[Key, Member],
        settings: Settings,
        configuration: Configuration,
        silent: Callable[[Member], None],
        session: int,
    ) -> None:
        self._session = session
        self._members = members
        self._settings = settings
        self._configuration = configuration
        self._silent = silent
        self._gate = asyncio.Semaphore(_AT_ONCE)
        #: What the IDE has said of itself.
        self.initialize: Fields = {}

    async def enter(self, member: Member) -> str:
        """Attach to one rank. Returns why that was not possible, or ""."""
        turn = contextlib.ExitStack()  # closed twice, it gives the turn away once

        def on_silent() -> None:
            turn.close()
            if self._members.get(member.rank.key) is member:
                member.place = SILENT
                self._silent(member)

        await self._gate.acquire()
        turn.callback(self._gate.release)
        try:
            if self._members.get(member.rank.key) is not member:
                return ""  # restarted meanwhile, or the IDE has left: nothing would release it
            await member.link.open(
                self.initialize, stay=self._configuration.stay, session=self._session, on_silent=on_silent
            )
            await member.link.request("attach", for_engine(self._configuration.arguments))
            await self._settings.give(member)
        except (MeshError, ConnectionError) as error:
            member.link.give_up(stay=False)  # an engine that is loaded and refuses would have the rank
            return f"{member.rank.name}: {error}"
        finally:
            turn.close()
        if member.place == SILENT:
            member.place = RUNNING
        return ""

    async def gather(self, entering: Collection[asyncio.Task[str]], members: Collection[Member]) -> None:
        """Wait for ranks that enter, but not for silent ones.

        If processors are busy, a late rank is not silent: the time counts from the last news of any rank.
        """
        clock = asyncio.get_running_loop().time
        until, pending = clock() + _PATIENCE, set(entering)
        while pending and clock() < until:
            heard = _answered(members)
            # Of many that load the rank's side at once the first takes its time.
            quiet = _QUIET if heard else SILENT_SECONDS
            done, pending = await asyncio.wait(pending, timeout=quiet, return_when=asyncio.FIRST_COMPLETED)
            loading = any(member.link.answered and not member.ready for member in members)
            if not done and heard == _answered(members) and not loading:
                return


def _answered(members: Collection[Member]) -> int:
    return sum(member.link.answered for member in members)
