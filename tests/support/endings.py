"""Ways in which commands end, each in a fork of one process: ``python -m tests.support.endings``.

Reads JSON from standard input, ``[[words, way]]``, and writes as JSON how each has ended: ``[exit code, standard
output, standard error]``. The forks end as an interpreter does, which writes what was printed only then.

A program is published that answers as the way says. ::

    usage      nothing is special
    unread     standard output is a pipe that nobody reads
    refused    the program hangs up before it has answered
    interrupt  SIGINT comes while the program is asked
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import time
from typing import IO

from meshrt.cli import main as meshrt_main
from meshrt.debug.__main__ import main as debug_main
from meshrt.transport import directories, tools

__all__ = ["endings"]

_RUN_ID = "abcd1234"
_SECONDS = 60.0


def endings(cases: list[tuple[list[str], str]]) -> list[tuple[int, str, str]]:
    """Run commands, one after the other; return how each has ended."""
    directory = directories.create_runtime(_RUN_ID)
    facts = {"cwd": os.getcwd(), "started": time.time(), "run_directory": str(directories.create_run(_RUN_ID))}
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(directory / "tools"))
    listener.listen()
    listener.settimeout(_SECONDS)
    tools.publish(directory, bytes(32), {"run_id": _RUN_ID, **facts})
    return [_ending(words, way, listener) for words, way in cases]


def _ending(words: list[str], way: str, listener: socket.socket) -> tuple[int, str, str]:
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - a fork leaves through here
    child = os.fork()
    if not child:
        _become(words, way, out, err)
    connection = listener.accept()[0] if way in ("refused", "interrupt") else None
    if way == "interrupt":
        os.kill(child, signal.SIGINT)
    elif connection is not None:
        connection.close()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), _text(out), _text(err)


def _become(words: list[str], way: str, out: IO[bytes], err: IO[bytes]) -> None:
    """End this process as the command does."""
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    if way == "unread":
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.close(writing)
        os.close(reading)
    sys.argv = words
    sys.exit(debug_main() if words[0] == "meshrt.debug" else meshrt_main())


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


if __name__ == "__main__":
    print(json.dumps(endings(json.load(sys.stdin))))
