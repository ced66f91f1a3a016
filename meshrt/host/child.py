"""One rank as its host agent knows it, and how it is forked."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from meshrt.hooks.facts import Body
from meshrt.host.family import join_family
from meshrt.host.osutil import die_with_parent, forget_bytes, set_command_line, set_name
from meshrt.host.output import Log, Stream
from meshrt.selection import Extent
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.directories import ERROR_FILE, error_path
from meshrt.transport.link import Link
from meshrt.transport.rootpipe import signal_at_end
from meshrt.wire.addresses import HostAddress, socket_path
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import Address
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import Secret
from meshrt.wire.tree import Leaving

#: The start of faulthandler's text when the process crashes; requested dumps do not start so.
_CRASH = b"Fatal Python error"
#: Characters of a dump that are kept. The main thread comes last.
_DUMP_MAX = 64 << 10
#: Bytes of its file that are read at once.
_FAULTS_MAX = 4 << 20

__all__ = ["Birth", "Child", "Plumbing", "become_rank", "keep_only"]


@dataclass(eq=False)
class Birth:
    """The data that a rank is given at its birth."""

    mesh_id: str
    mesh_name: str
    rank: int
    labels: Sequence[str]
    sizes: Sequence[int]
    env: dict[str, str] = field(repr=False)
    run_id: str
    address: HostAddress
    secret: Secret = field(repr=False)
    host: str
    argv: list[str]
    #: The mark of all processes that it starts, see `meshrt.host.family`.
    family: int
    #: `meshrt.transport.rootpipe.open_root_pipe`, to be inherited.
    root_pipe: int
    #: A directory of files, on this machine.
    run_directory: str
    #: The one where a user looks for them, if that is on another machine; or "".
    kept_at: str
    #: Control operations that it serves itself before any other: ``[name, body]``.
    operations: Sequence[tuple[str, Body]]
    #: Of the program; None: it has one machine so far.
    certificate: Certificate | None = field(default=None, repr=False)


class Plumbing(msgspec.Struct):
    """The rank's ends of its sockets and pipes; the pipes are -1 where it keeps its own output."""

    control: socket.socket
    listener: socket.socket
    stdout: int
    stderr: int
    fault_file: int
    #: Where connections of other machines come from.
    door: socket.socket

    def descriptors(self) -> set[int]:
        """Return the descriptors that the rank keeps."""
        sockets = {self.control.fileno(), self.listener.fileno(), self.door.fileno()}
        return {*sockets, self.stdout, self.stderr, self.fault_file}

    def close(self) -> None:
        """Close them in the agent once the rank has them."""
        self.control.close()
        self.listener.close()
        self.door.close()
        for pipe in (self.stdout, self.stderr):
            if pipe >= 0:
                os.close(pipe)


class Child(msgspec.Struct, eq=False):
    """The agent's side of one rank."""

    birth: Birth
    link: Link
    log: Log
    streams: list[Stream]
    fault_file: int
    path: str
    #: Gives the rank connections of other machines.
    door: socket.socket
    #: Something else has started its process (`meshrt.host.meeting`): this agent is not its parent, and never ends it.
    joined: bool = False
    #: Its script has ended; None: it has not, or has not said so.
    leaving: Leaving | None = None
    #: Closed when its end was noticed, for a parent that waits for that.
    watcher: socket.socket | None = None
    pid: int = 0
    pidfd: int = -1
    #: Why the agent itself had to end it.
    hint: str = ""
    gone: bool = False
    #: Its agent has killed it, as it did not stop in time.
    killed: bool = False
    #: When its end of the link was closed: earliest and latest time; monotonic ns.
    closed: tuple[int, int] | None = None
    #: The end of the requested dumps in the fault file: a crash writes behind them.
    asked_faults: int = 0
    #: The one that was read last.
    last_dump: str = ""

    @classmethod
    def prepare(cls, birth: Birth, log: Log, *, joined: bool = False) -> tuple[Child, Plumbing]:
        """Make both ends of the plumbing. Raises OSError when descriptors run out; nothing is left then.

        Args:
            joined: Its process exists, and keeps its own standard output and error.
        """
        cleanup: list[Callable[[], object]] = []
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            cleanup += [ours.close, theirs.close]
            path = socket_path(os.fsdecode(birth.address.directory), birth.mesh_id, birth.rank)
            listener = listening_socket(path)
            cleanup += [listener.close, lambda: os.unlink(path)]
            # In any case: a program that has one machine now may have several later.
            door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            cleanup += [door[0].close, door[1].close]
            door[0].setblocking(False)
            pipes = []
            for _ in range(0 if joined else 2):
                pipe = os.pipe2(os.O_CLOEXEC)
                pipes.append(pipe)
                cleanup += [lambda fd=fd: os.close(fd) for fd in pipe]  # type: ignore[misc]
            fault_file = os.memfd_create(f"meshrt-fault-{birth.rank}", os.MFD_CLOEXEC)
        except OSError:
            for close in reversed(cleanup):
                close()
            raise
        streams = [Stream(pipe[0], log, err=err) for pipe, err in zip(pipes, (False, True), strict=False)]
        child = cls(birth, Link(ours, control_decoder()), log, streams, fault_file, path, door[0], joined)
        stdout, stderr = (pipe[1] for pipe in pipes) if pipes else (-1, -1)
        return child, Plumbing(theirs, listener, stdout, stderr, fault_file, door[1])

    @property
    def address(self) -> Address:
        """Mesh id and base rank."""
        return self.birth.mesh_id, self.birth.rank

    def close(self) -> None:
        """Close and remove what `prepare` has made, and what is left of its output."""
        self.link.close()
        self.door.close()
        for stream in self.streams:
            stream.end()
        self.log.close()
        os.close(self.fault_file)
        if self.watcher is not None:
            self.watcher.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    @property
    def full(self) -> bool:
        """See `Link.full`."""
        return self.link.full

    def fault_size(self) -> int:
        """Return how much faulthandler has written."""
        return os.fstat(self.fault_file).st_size

    def take_dump(self, start: int) -> str:
        """Return the requested stacks that were written from ``start`` on; they do not count as a crash.

        The part that was read takes no memory any more. The file keeps its length: the rank may be writing to it.
        """
        if start < self.asked_faults and self.fault_size() == self.asked_faults:
            return self.last_dump  # another part has asked for the same stacks, and has read them
        start = max(start, self.asked_faults)
        try:
            dump = os.pread(self.fault_file, _FAULTS_MAX, start).partition(_CRASH)[0]
        except OSError as error:
            return f"(its stacks cannot be read: {error.strerror})"
        if start + len(dump) > self.asked_faults:
            self.asked_faults = start + len(dump)
            forget_bytes(self.fault_file, self.asked_faults)
        text = dump.decode("utf-8", errors="replace")
        if len(text) > _DUMP_MAX:
            text = f"{text[: _DUMP_MAX // 4]}\n...\n{text[-_DUMP_MAX * 3 // 4 :]}"
        self.last_dump = text
        return text

    def crash_text(self) -> str:
        """Return what faulthandler wrote because the process crashed, or ""."""
        try:
            written = os.pread(self.fault_file, _FAULTS_MAX, self.asked_faults)
        except OSError as error:
            self.hint = self.hint or f"the stack of a possible crash cannot be read: {error.strerror}"
            return ""
        crash = written.find(_CRASH)
        return written[crash:][: 1 << 16].decode("utf-8", errors="replace") if crash >= 0 else ""


def keep_only(descriptors: set[int]) -> None:
    """Close every descriptor from 3 on that is not in ``descriptors``."""
    low = 3
    for fd in sorted(descriptors):
        if fd >= low:
            os.closerange(low, fd)
            low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def _coordinates(birth: Birth) -> str:
    if not birth.labels:
        return ""
    extent = Extent(birth.labels, birth.sizes)
    return f" ({', '.join(f'{label}={index}' for label, index in extent.point(birth.rank).items())})"


def _script(birth: Birth) -> str:
    # Its arguments may have secrets in them, and everybody may read this.
    name = os.path.basename(birth.argv[0]) if birth.argv else ""
    return {"": "a Python prompt", "-c": "python -c"}.get(name, name)


def become_rank(birth: Birth, plumbing: Plumbing, main: Callable[[Birth, Plumbing], None]) -> None:
    """Turn this freshly forked process into a rank and run it; never returns.

    The agent's Python objects stay referenced (and frozen) for ever: they must not close a descriptor number that the
    rank has taken over.
    """
    code = 1
    try:
        gc.freeze()
        join_family(birth.family)
        os.setsid()
        die_with_parent(birth.address.agent_pid)
        keep_only(plumbing.descriptors() | {birth.root_pipe})
        signal.set_wakeup_fd(-1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(plumbing.stdout, 1)
        os.dup2(plumbing.stderr, 2)
        os.close(plumbing.stdout)
        os.close(plumbing.stderr)
        # The kernel closes the files of a process that ends in the order of their numbers: what the agent sees first.
        number = plumbing.control.detach()
        plumbing.control = socket.socket(fileno=os.dup(number))
        os.close(number)
        # Its process group, too: the agent, which kills the rest, may be stopped. The descriptor stays open for ever.
        if signal_at_end(birth.root_pipe, signal.SIGKILL, -os.getpid()) is None:
            os._exit(1)
        os.close(birth.root_pipe)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # Not the script's: its launcher takes the text in that file for the script's own error.
        os.environ[ERROR_FILE] = str(error_path(birth.run_directory, birth.mesh_name, birth.mesh_id, birth.rank))
        os.environ.update(birth.env)
        set_name(f"mesh:{birth.mesh_name[:5]}:{birth.rank}")
        set_command_line(f"meshrt: {birth.mesh_name} rank {birth.rank}{_coordinates(birth)} of {_script(birth)}")
        main(birth, plumbing)
        code = 0
    except SystemExit as error:
        # The end of the mesh has interrupted it outside of user code.
        code = error.code if isinstance(error.code, int) else 0
    except BaseException:
        import traceback  # start-up: only when everything is lost

        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        # User code may have closed or replaced them; no error may return into the agent's frames.
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)
