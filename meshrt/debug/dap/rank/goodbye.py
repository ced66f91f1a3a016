"""Rank side: the goodbye to an engine on behalf of an IDE that is gone."""

from __future__ import annotations

import logging
import socket

from meshrt.debug.dap.wire import MessageDecoder, encode

__all__ = ["say_goodbye"]

#: Seconds for the engine to resume all threads.
_PATIENCE = 2.0
#: The number of the request: no IDE's.
_NUMBER = -1
#: Bytes that are read at once.
_CHUNK = 128 << 10

_log = logging.getLogger("meshrt")


def say_goodbye(sock: socket.socket, decoder: MessageDecoder) -> None:
    """Send the engine the goodbye that the IDE has not sent, and wait until all threads resume.

    Args:
        sock: The socket to the engine; it has a time-out from here on.
        decoder: The decoder of the engine's messages; it may be in the middle of a message.
    """
    goodbye = {"seq": _NUMBER, "type": "request", "command": "disconnect", "arguments": {}}
    sock.settimeout(_PATIENCE)
    try:
        sock.sendall(encode(goodbye))
        while True:
            data = sock.recv(_CHUNK)
            if not data or any(each.get("request_seq") == _NUMBER for each in decoder.receive_data(data)):
                return
    except OSError as error:
        _log.warning("the engine of an IDE does not say goodbye: %s", error)
