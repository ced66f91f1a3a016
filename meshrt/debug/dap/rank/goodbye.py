"""Rank side: the goodbye that an engine is said in the place of an IDE that is gone."""

from __future__ import annotations

import logging
import socket

from meshrt.debug.dap.wire import MessageDecoder, encode

__all__ = ["say_goodbye"]

#: Seconds for the engine to let everything go on.
_PATIENCE = 2.0
#: The number of the request: no IDE's.
_NUMBER = -1
#: Bytes that are read at once.
_CHUNK = 128 << 10

_log = logging.getLogger("meshrt")


def say_goodbye(sock: socket.socket, decoder: MessageDecoder) -> None:
    """Say to the engine what the IDE has not said, and wait until everything goes on.

    Args:
        sock: To the engine; it has a time-out from here on.
        decoder: Of what the engine says; it may be in the middle of a message.
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
