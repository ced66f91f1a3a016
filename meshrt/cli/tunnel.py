"""``meshrt tunnel``: the other end of ``--via``, on the machine of the programs, on standard input and output.

::

    it prints                    meshrt tunnel VERSION
    {"do": "programs"}       ->  {"programs": [...]}: what their directories say, with their tokens; may be repeated
    {"do": "connect", ...}   ->  {}, and from then on the bytes of a connection to the program
    {"do": "run", ...}       ->  what that command of meshrt prints; its exit status is that of the tunnel
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from meshrt import __version__
from meshrt.commandline.command import Arguments
from meshrt.errors import MeshError, UsageError
from meshrt.show.status import ExitCode
from meshrt.transport.tools import TOKEN, Program, as_path, programs

__all__ = ["GREETING", "Connect", "Programs", "Run", "Served", "Shown", "pump", "serve", "served_by", "show"]

#: The line that begins with it is the first that the tunnel prints.
GREETING = b"meshrt tunnel "
_LINE_MAX = 1 << 20
_CHUNK = 1 << 16


class Shown(Program, frozen=True, kw_only=True):
    """A program, and what terminals prove that they have, in hexadecimal digits."""

    token: Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{2})+\Z")]

    def __repr__(self) -> str:
        return f"Shown({self.run_id})"  # without the token


class Served(msgspec.Struct, omit_defaults=True):
    """An answer.

    Attributes:
        problem: Why the request fails; "": it does not.
    """

    programs: list[Shown] = []
    problem: str = ""


class _Asked(msgspec.Struct, tag_field="do", frozen=True):
    pass


class Programs(_Asked, tag="programs", frozen=True):
    """Name the programs."""


class Connect(_Asked, tag="connect", frozen=True):
    """Connect to a program."""

    run_id: str


class Run(_Asked, tag="run", frozen=True):
    """Run a command of meshrt.

    Attributes:
        words: Its name and arguments.
        columns: Of the terminal on the other side; 0: there is none.
    """

    words: list[str]
    columns: int


def show(_given: Arguments) -> int:
    """Run the command. Returns the exit code."""
    _write(GREETING + __version__.encode() + b"\n")
    return serve(0, 1, _run)


def serve(source: int, target: int, run: Callable[[Sequence[str], int], int]) -> int:
    """Answer what is asked. Returns the exit code.

    Args:
        source, target: Descriptors.
        run: Does what a `Run` asks for.
    Raises:
        UsageError: What is asked is not valid.
    """
    while line := _line(source):
        try:
            asked = msgspec.json.decode(line, type=Programs | Connect | Run)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(f"invalid request; only meshrt --via starts this command: {error}") from None
        match asked:
            case Programs():
                _answer(Served([shown for each in programs() if (shown := _shown(each)) is not None]), target)
            case Connect():
                return _connect(asked.run_id, source, target)
            case Run():
                return run(asked.words, asked.columns)
    return ExitCode.OK


def served_by(line: bytes) -> Served:
    """Return an answer of the other end. Raises MeshError: the line is none."""
    try:
        return msgspec.json.decode(line, type=Served, dec_hook=as_path)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MeshError(str(error)) from None


def _shown(program: Program) -> Shown | None:
    try:
        token = (program.directory / TOKEN).read_text()
    except OSError:
        return None  # it has ended meanwhile
    return Shown(**msgspec.structs.asdict(program), token=token)


def _connect(run_id: str, source: int, target: int) -> int:
    program = next((each for each in programs() if each.run_id == run_id), None)
    if program is None:
        _answer(Served(problem=f"program {run_id} has ended"), target)
        return ExitCode.FAILED
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(str(program.directory / "tools"))
        except OSError as error:
            _answer(Served(problem=f"program {run_id} does not answer: {error.strerror}"), target)
            return ExitCode.FAILED
        _answer(Served(), target)
        pump(sock, source, target)
    return ExitCode.OK


def pump(sock: socket.socket, source: int, target: int) -> None:
    """Pass the bytes of a socket to a descriptor, and those of another one to the socket, until one of them ends."""

    def read() -> None:
        try:
            while data := os.read(source, _CHUNK):
                sock.sendall(data)
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the socket has ended: the loop below sees that, too

    threading.Thread(target=read, daemon=True).start()
    try:
        while data := sock.recv(_CHUNK):
            _write(data, target)
    except OSError:
        pass  # as its end


def _run(words: Sequence[str], columns: int) -> int:
    from meshrt.commandline.shell import run_words  # start-up: only for this

    if columns:
        os.environ["COLUMNS"] = str(columns)
    # What follows on standard input, if anything, is for no command.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not words:
        raise MeshError("no command was given")
    return run_words(words)


def _line(source: int) -> bytes:
    """Read one line and nothing behind it: the bytes of a connection may follow."""
    line = bytearray()
    while len(line) < _LINE_MAX and not line.endswith(b"\n"):
        byte = os.read(source, 1)
        if not byte:
            return b""
        line += byte
    return bytes(line)


def _answer(answer: Served, target: int) -> None:
    _write(msgspec.json.encode(answer, enc_hook=str) + b"\n", target)


def _write(data: bytes, target: int = 1) -> None:
    while data:
        data = data[os.write(target, data) :]
