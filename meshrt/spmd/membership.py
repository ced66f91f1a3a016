"""How a process that a launcher has started becomes a rank of the job's program, beside what it does.

::

    looking: the socket of the host agent is not there yet, or the agent refuses
        --welcome--> joined --program gone--> alone
        `--- `wait` returns False: the script begins, and the process joins when it can

Nothing of it may end the process, or delay its script by more than `wait` is given. A breakpoint waits until it has
joined.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from meshrt.actor import pdbhook
from meshrt.actor.breakpoints import UntilJoined
from meshrt.actor.joined import JoinedRank, MainCall
from meshrt.errors import MeshError, ProtocolError
from meshrt.host.child import Birth, Plumbing
from meshrt.host.meeting import meeting_path
from meshrt.store.protocol import close_descriptors
from meshrt.transport.link import same_user
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import Secret
from meshrt.wire.meeting import FROM_MEETING, AskToJoin, Ready, Refused, Welcome

__all__ = ["Membership", "own_membership"]

#: Seconds between two looks for the agent, in the first seconds and later.
_AGAIN, _SOON, _AGAIN_LATER = 0.02, 10.0, 0.5
#: Seconds for its answer, and after which it is not looked for any more.
_ANSWER, _GIVE_UP = 30.0, 600.0
_READ = 1 << 20


@dataclass(frozen=True)
class _Descriptors:
    """Of this process, for the agent: what faulthandler writes to, and a socket of the parent or -1."""

    stacks: int
    watcher: int


#: A fork of its process is another process.
_own: Membership | None = None


def own_membership() -> Membership | None:
    """Return that of this process; None: it has none, as a fork of one that has. Any thread."""
    return _own if _own is not None and _own.pid == os.getpid() else None


class Membership:
    """One process in the program of its job.

    Args:
        meeting: The name of the socket where the processes of this host meet their agent.
        main: The call that runs here.
        stacks: A descriptor of the file that faulthandler is to write to.
        watcher: A descriptor of a socket by which the parent knows that the end of this process was noticed; -1: none.
        before: Called first, on the thread that joins; what it raises is why the process has not joined.
        settled: Called last, on that thread: with ``""`` if the process has joined, or why it never will.
        tells: It tells on standard error that it has joined late.
    """

    def __init__(
        self,
        meeting: str,
        main: MainCall,
        stacks: int,
        watcher: int = -1,
        before: Callable[[], object] | None = None,
        settled: Callable[[str], object] | None = None,
        *,
        tells: bool = True,
    ) -> None:
        global _own
        _own = self
        self.pid = os.getpid()
        self._before = before
        self._told = settled
        self._tells = tells
        self._meeting = meeting
        self._main = main
        self._descriptors = _Descriptors(stacks, watcher)
        #: Set when it has joined, or never will.
        self._settled = threading.Event()
        self._rank: JoinedRank | None = None
        #: Why it has not joined, so far.
        self.why = "the host agent of the job is not running"
        self._late = False
        who = "this process" if main.context.base_rank < 0 else f"rank {main.context.base_rank}"
        self._hook = UntilJoined(self._settled, "" if main.quiet else who, lambda: self.why)
        if sys.breakpointhook is sys.__breakpointhook__:
            pdbhook.install()
            sys.breakpointhook = self._hook
        try:
            threading.Thread(target=self._run, name="meshrt-join", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # the system's limit of threads
            self.why = str(error) or type(error).__name__
            self._settle()

    def wait(self, seconds: float) -> bool:
        """Wait until the process has joined; returns whether it has. It still does later, if it can."""
        self._settled.wait(seconds)
        self._late = self._rank is None
        return not self._late

    def raised(self, error: BaseException) -> None:
        """The script has ended by an exception. In ``except``, on the main thread."""
        if self._rank is not None:
            self._rank.raised(error)

    def ends(self) -> None:
        """The script has ended. The main thread."""
        if self._rank is not None:
            self._rank.ends()

    # -- the thread

    def _run(self) -> None:
        begun = time.monotonic()
        try:
            if self._before is not None:
                self._before()
            while not self._try() and (waited := time.monotonic() - begun) < _GIVE_UP:
                time.sleep(_AGAIN if waited < _SOON else _AGAIN_LATER)
        except (OSError, MeshError, RuntimeError, MemoryError) as error:  # RuntimeError: as above
            self.why = str(error) or type(error).__name__
        finally:
            self._settle()

    def _settle(self) -> None:
        for descriptor in (self._descriptors.stacks, self._descriptors.watcher):
            if descriptor >= 0:
                with contextlib.suppress(OSError):  # the script has closed all
                    os.close(descriptor)
        # Last: the script begins now, and may close all descriptors. Their numbers are those of its own files then.
        self._settled.set()
        if self._rank is None:
            self._hook.end()
        if self._told is not None:
            self._told("" if self._rank is not None else self.why)

    def _try(self) -> bool:
        """Join; returns whether that is done. Raises OSError, MeshError: it cannot be."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            try:
                sock.connect(meeting_path(self._meeting))
            except (FileNotFoundError, ConnectionRefusedError):
                return False
            if not same_user(sock):
                raise MeshError("the host agent belongs to another user")
            sock.settimeout(_ANSWER)
            given = [each for each in (self._descriptors.stacks, self._descriptors.watcher) if each >= 0]
            socket.send_fds(sock, [control_frame(AskToJoin(self._main.context.base_rank))], given, socket.MSG_NOSIGNAL)
            try:
                answer, descriptors = _receive(sock)
            except (ConnectionError, ProtocolError):
                return False  # an agent that ends
            if isinstance(answer, Refused):
                self.why = answer.why
                return False
            self._join(answer, descriptors, sock)
            return True

    def _join(self, welcome: Welcome, descriptors: list[int], meeting: socket.socket) -> None:
        first = self._descriptors.watcher
        stacks = os.dup(self._descriptors.stacks)
        if first >= 0:
            # The kernel closes the files of a process that ends in the order of their numbers: what the agent sees
            # first. The agent has the descriptor that had this number.
            os.dup2(descriptors[0], first, inheritable=False)
            os.close(descriptors[0])
            descriptors[0] = first
            self._descriptors = replace(self._descriptors, watcher=-1)
        control, listener, door = (socket.socket(fileno=descriptor) for descriptor in descriptors)
        plumbing = Plumbing(control, listener, -1, -1, stacks, door)
        rank = JoinedRank(_birth(welcome), plumbing, self._main)
        rank.join()
        self._rank = rank
        meeting.sendall(control_frame(Ready()), socket.MSG_NOSIGNAL)
        if self._late and self._tells:
            print("meshrt: joined now; this process is visible to meshrt commands", file=sys.stderr, flush=True)


def _receive(sock: socket.socket) -> tuple[Welcome | Refused, list[int]]:
    """Return the answer of the agent, and its descriptors: three of a welcome. Raises OSError, ProtocolError."""
    decoder, descriptors = control_decoder(), list[int]()
    with contextlib.ExitStack() as opened:
        opened.callback(close_descriptors, descriptors)
        while True:
            data, more, flags, _ = socket.recv_fds(sock, _READ, 8, socket.MSG_CMSG_CLOEXEC)
            descriptors += more
            if flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, "no descriptor is free (see ulimit -n)")
            if not data:
                raise ConnectionResetError("the host agent has ended")
            for frame in decoder.receive_data(data):
                answer = FROM_MEETING.decode(frame.payload)
                if len(descriptors) != (3 if isinstance(answer, Welcome) else 0):
                    raise ProtocolError(f"{len(descriptors)} descriptors with {type(answer).__name__}")
                opened.pop_all()
                return answer, descriptors


def _birth(welcome: Welcome) -> Birth:
    certificate = None if welcome.certificate is None else Certificate(*welcome.certificate)
    return Birth(
        welcome.mesh,
        welcome.name,
        welcome.rank,
        welcome.labels,
        welcome.sizes,
        {},
        welcome.run_id,
        welcome.address,
        Secret(welcome.secret),
        welcome.host,
        sys.argv,
        0,
        -1,
        welcome.run_directory,
        welcome.kept_at,
        welcome.operations,
        certificate,
    )
