"""``meshrt dap --stdio``: one session of an IDE that has started this process, on its standard input and output.

The process finds the program by itself, through the directory that is this user's alone, so the IDE has no secret and
connects to nothing. ::

    IDE --pipes--> the session of the mesh: this process is the router, and listens at a unix socket
    IDE --pipes--> a session of a rank: another process, which passes bytes to that socket (``meshSocket``)

Which of both it is, the attach request says. The router ends with the session of the mesh.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket

from meshrt.debug.dap.router.greeting import answer_before_attach
from meshrt.debug.dap.wire import Message, MessageDecoder, arguments_of, encode, failure
from meshrt.errors import AuthenticationError, MeshError, ProtocolError
from meshrt.show.status import ExitCode, complain
from meshrt.transport.link import same_user

__all__ = ["serve_stdio"]

_CHUNK = 1 << 16


class _Ide:
    """The pipes to the IDE."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._number = 0

    def write(self, message: Message) -> None:
        """Send a message of this process."""
        self._number += 1
        self.writer.write(encode({**message, "seq": self._number}))


async def serve_stdio(run: str) -> int:
    """Serve the session. Returns the exit code, 0 also if there is no session: the IDE has been told why.

    Input that is not valid DAP, or ends within a message, cannot be answered: the error is printed, and the exit code
    is 1.

    Args:
        run: The program, where the IDE's configuration names none; "": the only one.
    """
    ide = await _pipes()
    decoder = MessageDecoder()
    try:
        initialize, attach, behind = await _until_attach(ide, decoder)
    except ProtocolError as error:
        return _invalid(error)
    if attach is None:
        return ExitCode.OK
    arguments = arguments_of(attach)
    problem: ProtocolError | None = None
    try:
        path = arguments.get("meshSocket")
        if isinstance(path, str) and path:
            problem = await _carry(ide, await _dial(path), initialize, [attach, *behind], decoder)
        else:
            from meshrt.debug.dap.router.serving import own_router  # start-up: an IDE starts a process for each rank

            async with own_router(arguments, run) as path:
                problem = await _carry(ide, await _dial(path), initialize, [attach, *behind], decoder)
    except (MeshError, OSError) as error:
        ide.write(failure(attach, str(error)))
        with contextlib.suppress(ConnectionError):
            await ide.writer.drain()
    return ExitCode.OK if problem is None else _invalid(problem)


def _invalid(problem: ProtocolError) -> int:
    """Tell the user that the input is not valid. Returns the exit code."""
    complain(f"meshrt dap: {problem}")
    return ExitCode.FAILED


async def _pipes() -> _Ide:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_CHUNK)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb", 0))
    output = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # whatever prints must not come between messages
    protocol = asyncio.streams.FlowControlMixin(loop)
    transport, _ = await loop.connect_write_pipe(lambda: protocol, output)
    return _Ide(reader, asyncio.StreamWriter(transport, protocol, None, loop))


async def _until_attach(ide: _Ide, decoder: MessageDecoder) -> tuple[Message | None, Message | None, list[Message]]:
    """Answer the IDE until it attaches; return how it has begun, that request, and what has come behind it.

    The router must be known before it is asked anything: what it would answer until then is the same for all. Raises
    ProtocolError.
    """
    initialize: Message | None = None
    while data := await ide.reader.read(_CHUNK):
        messages = decoder.receive_data(data)
        for at, message in enumerate(messages):
            if message["type"] != "request":
                continue
            if message["command"] == "attach":
                return initialize, message, messages[at + 1 :]
            answer, goes_on = answer_before_attach(message)
            ide.write(answer)
            if not goes_on:
                return None, None, []
            if message["command"] == "initialize":
                initialize = message
    decoder.receive_eof()
    return None, None, []


async def _dial(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a router. Raises OSError, AuthenticationError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
        if not same_user(sock):
            raise AuthenticationError(f"{path} is served by another user")
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return await asyncio.open_unix_connection(sock=sock)


async def _carry(
    ide: _Ide,
    router: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    initialize: Message | None,
    messages: list[Message],
    decoder: MessageDecoder,
) -> ProtocolError | None:
    """Carry messages both ways until the router hangs up. Returns what is not valid in those of the IDE."""
    reader, writer = router
    if initialize is not None:
        writer.write(encode(initialize))
        await _skip_answer(reader)

    async def up(messages: list[Message]) -> None:
        try:
            while True:
                writer.writelines(map(encode, messages))
                await writer.drain()
                data = await ide.reader.read(_CHUNK)
                if not data:
                    decoder.receive_eof()
                    break
                messages = decoder.receive_data(data)
        finally:
            writer.close()  # the IDE is gone: the router is told by this, and hangs up

    task = asyncio.get_running_loop().create_task(up(messages))
    try:
        while data := await reader.read(_CHUNK):
            ide.writer.write(data)
            await ide.writer.drain()
    except ConnectionError:
        pass  # the IDE does not read any more, which is its end as well
    finally:
        task.cancel()
        await asyncio.wait([task])
        writer.close()
    problem = None if task.cancelled() else task.exception()
    if isinstance(problem, ProtocolError):
        return problem
    if problem is not None and not isinstance(problem, ConnectionError):
        raise problem
    return None


async def _skip_answer(reader: asyncio.StreamReader) -> None:
    """Skip the answer to ``initialize``, which the IDE has: before it attaches the router says nothing else."""
    decoder = MessageDecoder()
    while data := await reader.read(_CHUNK):
        if decoder.receive_data(data):
            return
