"""An adapter that says what the test wants."""

from __future__ import annotations

import socket
from pathlib import Path

from meshrt.hooks.facts import Body
from tests.dap.framing import framed, read_message

__all__ = ["Adapter"]


class Adapter:
    """The other end of one connection, on a unix socket."""

    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "adapter")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen()
        self._sent = 0

    def accept(self) -> None:
        """Take the connection of the client."""
        self.sock, _ = self._listener.accept()
        self.stream = self.sock.makefile("rb")

    def received(self) -> Body:
        """The next message of the client."""
        message = read_message(self.stream)
        assert message is not None
        return message

    def send(self, **message: object) -> None:
        """Send a message with the next number."""
        self._sent += 1
        self.sock.sendall(framed({"seq": self._sent, **message}))

    def respond(self, request: Body, **body: object) -> None:
        """Answer a request with success."""
        self.send(type="response", request_seq=request["seq"], command=request["command"], success=True, body=body)

    def answer(self, command: str, **body: object) -> Body:
        """Answer the next message, which must be this request, with success; returns its arguments."""
        request = self.received()
        assert (request["type"], request["command"]) == ("request", command)
        self.respond(request, **body)
        arguments: Body = request.get("arguments") or {}
        return arguments

    def close(self) -> None:
        """End the connection."""
        self.stream.close()
        self.sock.close()
        self._listener.close()
