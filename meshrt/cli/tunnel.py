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
from collections.abc import Sequence
from typing import Any

import msgspec

from meshrt import __version__
from meshrt.commandline.command import Arguments
from meshrt.errors import MeshError, UsageError
from meshrt.show.status import ExitCode
from meshrt.transport.tools import TOKEN, Program, programs

__all__ = ["GREETING", "Connect", "Programs", "Run", "Served", "pump", "show"]

#: The line that begins with it is the first that the tunnel prints.
GREETING = b"meshrt tunnel "
_LINE_MAX = 1 << 20
_CHUNK = 1 << 16


class Served(msgspec.Struct, omit_defaults=True):
    """An answer.

    Attributes:
        programs: Fields of `Program`, and ``token``, in hexadecimal digits.
        problem: Why the request fails; "": it does not.
    """

    programs: list[dict[str, Any]] = []
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
    while line := _line():
        try:
            asked = msgspec.json.decode(line, type=Programs | Connect | Run)
        except msgspec.MsgspecError as error:
            raise UsageError(f"meshrt --via starts this, and speaks to it: {error}") from None
        match asked:
            case Programs():
                _answer(Served([_facts(each) for each in programs()]))
            case Connect():
                return _connect(asked.run_id)
            case Run():
                return _run(asked.words, asked.columns)
    return ExitCode.OK


def _facts(program: Program) -> dict[str, Any]:
    token = (program.directory / TOKEN).read_text()
    facts: dict[str, Any] = msgspec.to_builtins(program, enc_hook=str)
    return {**facts, "token": token}


def _connect(run_id: str) -> int:
    program = next((each for each in programs() if each.run_id == run_id), None)
    if program is None:
        _answer(Served(problem=f"program {run_id} has ended"))
        return ExitCode.FAILED
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(str(program.directory / "tools"))
        except OSError as error:
            _answer(Served(problem=f"program {run_id} does not answer: {error.strerror}"))
            return ExitCode.FAILED
        _answer(Served())
        pump(sock, 0, 1)
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


def _line() -> bytes:
    """Read one line and nothing behind it: the bytes of a connection may follow."""
    line = bytearray()
    while len(line) < _LINE_MAX and not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        line += byte
    return bytes(line)


def _answer(answer: Served) -> None:
    _write(msgspec.json.encode(answer) + b"\n")


def _write(data: bytes, target: int = 1) -> None:
    while data:
        data = data[os.write(target, data) :]
