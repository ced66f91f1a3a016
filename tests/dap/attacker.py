"""Another user of the machine. Takes its user id, and does what it is told on its command line.

``squat WHERE``
    Listens at a port or a path, plays an adapter, and prints the arguments with which an IDE attaches.
``attach PORT TOKEN``
    Attaches, and prints what it is told.
``flood PORT COUNT``
    Keeps so many connections open, and opens another one for each that ends. Prints a line when so many were opened.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # another user may not read it
import json
import os
import selectors
import socket
import sys
import threading
from typing import Any

from tests.support.others import NOBODY


def framed(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def listening(where: str) -> socket.socket:
    if where.isdigit():
        return socket.create_server(("127.0.0.1", int(where)))
    return socket.create_server(where, family=socket.AF_UNIX)


def squat(where: str) -> None:
    with listening(where) as server:
        print("listens", flush=True)
        sock, _ = server.accept()
        with sock, sock.makefile("rb") as stream:
            number = 0
            while (line := stream.readline()).startswith(b"Content-Length: "):
                stream.readline()
                asked = json.loads(stream.read(int(line.split()[1])))
                number += 1
                answer = {"seq": number, "type": "response", "request_seq": asked["seq"], "command": asked["command"]}
                if asked["command"] == "attach":
                    print(json.dumps(asked["arguments"]), flush=True)
                    sock.sendall(framed({**answer, "success": False, "message": "try again"}))
                else:
                    sock.sendall(framed({**answer, "success": True}))
        sys.stdin.readline()


def attach(port: int, token: str) -> None:
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        try:
            sock.sendall(framed({"seq": 1, "type": "request", "command": "attach", "arguments": {"meshToken": token}}))
            print(repr(sock.recv(1000)))
        except ConnectionError as error:
            print(type(error).__name__)


def flood(port: int, count: int) -> None:
    selector = selectors.DefaultSelector()
    opened = 0

    def another() -> None:
        nonlocal opened
        sock = socket.create_connection(("127.0.0.1", port), 30)
        opened += 1
        selector.register(sock, selectors.EVENT_READ)
        if opened == count:
            print("floods", flush=True)

    for _ in range(count):
        another()
    reader = threading.Thread(target=sys.stdin.readline)
    reader.start()
    while reader.is_alive():
        for key, _ in selector.select(0.1):
            selector.unregister(key.fileobj)
            sock: Any = key.fileobj
            sock.close()
            another()


if __name__ == "__main__":
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    what, where = sys.argv[1:3]
    if what == "squat":
        squat(where)
    elif what == "attach":
        attach(int(where), sys.argv[3])
    else:
        flood(int(where), int(sys.argv[3]))
