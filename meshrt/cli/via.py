"""``--via COMMAND``: the programs of another machine, looked at from this one.

::

    meshrt debug --via "ssh n1"        a directory of its own, with one for each program of n1: token, program.json, and
         |                             a socket, which this process serves; also for helpers that the command starts
         +-- ssh n1 sh                 for each connection: a shell there, which becomes `meshrt tunnel`
               meshrt tunnel ----------- the socket of the program

So every command works as with a program of this machine, and proves the program's token from end to end. A command that
reads files of programs runs on the other machine. Secrets travel on the standard input and output of COMMAND only.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from meshrt import __version__
from meshrt.cli.tunnel import GREETING, Connect, Programs, Run, Served, Shown, pump, served_by
from meshrt.errors import MeshError, UsageError
from meshrt.transport import dirlock, places
from meshrt.transport.acceptor import listening_socket
from meshrt.transport.link import same_user
from meshrt.transport.tools import publish

__all__ = ["run"]

#: Bytes that a shell there may print before it is asked anything.
_NOISE = 64 << 10
_PREFIX = "via-"
#: Read by a shell of any kind from its standard input, so that no quoting of COMMAND matters: ssh joins its words and
#: has them split again, others do not. The interpreter of the same path is most likely to have the same meshrt.
_SHELL = (
    't() {{ "$1" -P -c \'import meshrt\' 2>/dev/null </dev/null && exec "$1" -P -m meshrt tunnel; }}; t {python}; '
    "command -v meshrt >/dev/null && exec meshrt tunnel; t python3; "
    "echo 'meshrt was not found: not in {python} or python3, and no command meshrt' >&2; exit 127\n"
)


def run(command: str, words: Sequence[str], reads_files: bool, here: Callable[[], int]) -> int:
    """Run a command of the shell for the programs of another machine. Returns its exit code.

    Args:
        command: What begins a command line there: ``ssh n1``.
        words: The command, without ``--via``.
        reads_files: It runs there.
        here: Runs it on this machine.
    Raises:
        UsageError, MeshError: The other machine cannot be reached, or has no meshrt, or another one.
    """
    try:
        way = _Way(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--via {command!r} is not a valid command: {error}") from None
    if not way.command:
        raise UsageError('--via needs a command that runs other commands there, such as "ssh node"')
    if reads_files:
        return way.run(words)
    with _mirrored(way, command):
        return here()


class _Tunnel:
    """One process of COMMAND, at the other end of which is `meshrt tunnel`.

    Raises:
        UsageError, MeshError: As `run`.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._shown = shlex.join(command)
        try:
            process = subprocess.Popen(
                [*command, "sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
            )
        except OSError as error:
            raise UsageError(f"--via: {command[0]}: {error.strerror}") from None
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("a process was started without the pipes that were asked for")
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        try:
            self._write(_SHELL.format(python=shlex.quote(sys.executable)).encode())
            self._greeted()
        except BaseException:
            self.close()
            raise

    def _greeted(self) -> None:
        seen = 0
        while seen < _NOISE:
            line = self._line()
            seen += len(line)
            if GREETING in line and line.endswith(b"\r\n"):  # the echo of what was written, too
                raise UsageError(
                    f"{self._shown} allocates a terminal there, which changes the data; "
                    "expected a command without a terminal (ssh without -t)"
                )
            if line.startswith(GREETING):
                there = line[len(GREETING) :].decode(errors="replace").strip()
                if there != __version__:
                    raise MeshError(f"{self._shown}: that machine has meshrt {there}, and this one {__version__}")
                return
        raise MeshError(f"{self._shown} prints other output than that of meshrt")

    def ask(self, asked: Programs | Connect) -> Served:
        """Ask the other end; returns its answer. Raises MeshError."""
        self.tell(asked)
        line = self._line()
        try:
            return served_by(line)
        except MeshError as error:
            raise MeshError(f"{self._shown} has sent an invalid answer: {error}") from None

    def tell(self, told: Programs | Connect | Run) -> None:
        """Tell the other end what it is to do."""
        self._write(msgspec.json.encode(told) + b"\n")

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # its end is found where its answer is read
            self.stdin.write(data)

    def _line(self) -> bytes:
        line = self.stdout.readline()
        if not line.endswith(b"\n"):
            status = self.process.wait()
            raise MeshError(f"{self._shown} has ended, with exit status {status}, before meshrt answered there")
        return line

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.stdin.close()
        self.stdout.close()
        self.process.wait()


class _Way:
    """Makes tunnels. Any thread.

    Args:
        command: The words of COMMAND.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self._environment = dict(os.environ)  # without what is set for the command that runs here
        self._lock = threading.Lock()
        #: One that was asked for the programs, and can serve a connection.
        self._free: list[_Tunnel] = []
        self._made: list[_Tunnel] = []

    def tunnel(self) -> _Tunnel:
        """Return one that nothing uses."""
        with self._lock:
            if self._free:
                return self._free.pop()
        made = _Tunnel(self.command, self._environment)
        with self._lock:
            self._made.append(made)
        return made

    def programs(self) -> Sequence[Shown]:
        """Return what is known of the programs there. Raises MeshError."""
        tunnel = self.tunnel()
        answer = tunnel.ask(Programs())
        if answer.problem:
            raise MeshError(answer.problem)
        with self._lock:
            self._free.append(tunnel)
        return answer.programs

    def run(self, words: Sequence[str]) -> int:
        """Run a command of meshrt there; returns its exit code."""
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        with contextlib.closing(self.tunnel()) as tunnel:
            tunnel.tell(Run([*words], columns))
            sys.stdout.flush()
            while data := tunnel.stdout.read(1 << 16):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            return tunnel.process.wait()

    def close(self) -> None:
        """End all of them."""
        with self._lock:
            made, self._made = self._made, []
        for each in made:
            each.close()


@contextlib.contextmanager
def _mirrored(way: _Way, command: str) -> Iterator[None]:
    """Have the commands of this process, and those that it starts, find the programs of the other machine."""
    names = ("MESHRT_RUNTIME_DIR", "MESHRT_RUNS")
    before = {name: os.environ.get(name) for name in names}
    with contextlib.ExitStack() as undo:
        undo.callback(way.close)
        found = way.programs()
        # Beside those of the programs of this machine, which are at a place that is short enough for sockets.
        base = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=places.make_runtime_base()))
        undo.callback(shutil.rmtree, base)
        dirlock.lock(base)
        undo.callback(dirlock.unlock, base)
        _remove_left_over(base)
        for program in {each.run_id: each for each in found}.values():
            undo.enter_context(_served(base / f"p-{program.run_id}", program, command, way))
        os.environ.update(zip(names, (str(base), str(base / "runs")), strict=True))
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _remove_left_over(own: Path) -> None:
    """Remove the directories of such commands that were killed."""
    for path in own.parent.glob(f"{_PREFIX}*"):
        if path != own and not dirlock.is_locked(path):
            shutil.rmtree(path, ignore_errors=True)  # another command may do so, too


@contextlib.contextmanager
def _served(directory: Path, program: Shown, command: str, way: _Way) -> Iterator[None]:
    """Serve the socket of one program."""
    directory.mkdir(mode=0o700)
    dirlock.lock(directory)
    listener = listening_socket(str(directory / "tools"))
    facts = msgspec.to_builtins(msgspec.structs.replace(program, via=command), enc_hook=str)
    publish(directory, bytes.fromhex(facts.pop("token")), facts)
    serving = threading.Thread(target=_serve, args=(listener, program.run_id, way), daemon=True)
    serving.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        dirlock.unlock(directory)


def _serve(listener: socket.socket, run_id: str, way: _Way) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:  # closed: the command has ended
            return
        if not same_user(sock):
            sock.close()
            continue
        threading.Thread(target=_connect, args=(sock, run_id, way), daemon=True).start()


def _connect(sock: socket.socket, run_id: str, way: _Way) -> None:
    with sock:
        try:
            tunnel = way.tunnel()
            answer = tunnel.ask(Connect(run_id))
            if answer.problem:
                raise MeshError(answer.problem)
        except MeshError as error:
            print(f"meshrt: --via: {error}", file=sys.stderr)
            return
        pump(sock, tunnel.stdout.fileno(), tunnel.stdin.fileno())
