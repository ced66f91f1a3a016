"""`meshrt top --serve`: who gets an answer at its port."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import IO
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.free_port import free_port
from tests.support.programs import another_program, environment, run_python
from tests.support.waiting import wait_until

aiohttp = pytest.importorskip("aiohttp", reason="not installed: textual-serve (pip install --group top)")
pytest.importorskip("textual_serve", reason="not installed: textual-serve (pip install --group top)")

WAIT = 60
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "bWVzaHJ0IG1lc2hydCBtZQ==",
}


class Served:
    """A running `meshrt top --serve`.

    Attributes:
        address: What it has printed.
        program: The pid of the program.
    """

    def __init__(self, address: str, program: int, server: int, errors: IO[str]) -> None:
        self.address, self.program, self._errors = address, program, errors
        self._server = psutil.Process(server)
        parts = urlsplit(address)
        assert parts.port is not None
        self.port, self.path = parts.port, parts.path

    def ask(self, path: str, *headers: tuple[str, str]) -> tuple[int, dict[str, str], str]:
        """Send a request as it is written here; returns status, headers by lower-case name, and body."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=WAIT)
        with contextlib.closing(connection):
            connection.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            body = "" if answer.status == 101 else answer.read().decode()
        # The screen of a browser ends behind it, when it has started: for as long as that takes on this machine.
        wait_until(lambda: not self._server.children(), WAIT, "the screens end")
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body

    def said(self) -> str:
        """What it has written to its standard error."""
        return os.pread(self._errors.fileno(), 1 << 20, 0).decode()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    port = free_port()
    with another_program() as program:
        command = [sys.executable, "-m", "meshrt", "top", str(program.pid), "--serve", "--port", str(port)]
        with (
            tempfile.TemporaryFile("w+") as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()) as serving,
        ):
            assert serving.stdout is not None
            try:
                address = serving.stdout.readline().strip()
                assert address.startswith(f"http://localhost:{port}/"), address
                yield Served(address, program.pid, serving.pid, errors)
            finally:
                serving.send_signal(signal.SIGINT)
            assert "all who have the address see the program" in serving.stdout.read()
        assert serving.returncode == 0 and program.stdin is not None
        program.stdin.write("\n")


@pytest.mark.nightly
def test_a_browser_that_knows_the_address(served: Served) -> None:
    async def browse() -> None:
        async with aiohttp.ClientSession() as person:
            async with person.get(served.address) as answer:
                page = await answer.text()
                assert answer.status == 200 and f"{served.address.replace('http', 'ws')}ws" in page
            async with person.get(f"{served.address}static/css/xterm.css") as answer:
                assert answer.status == 200 and f"{served.address}static/css/xterm.css" in page
            async with (
                person.ws_connect(f"{served.address}ws?width=120&height=30") as screen,
                asyncio.timeout(WAIT),
            ):
                shown = b""
                while not all(text in shown for text in (b"1 idle", f"pid {served.program}".encode())):
                    shown += (await screen.receive()).data

    asyncio.run(browse())


def test_without_the_secret_nothing_is_answered(served: Served) -> None:
    host = ("Host", f"localhost:{served.port}")
    wrong = f"/{'A' * (len(served.path) - 2)}/"
    for path in (
        "/",
        "/ws",
        "/static/css/xterm.css",
        wrong,
        f"{wrong}ws",
        f"/{served.path}",
        served.path[:-2],
        "/%ff/",
    ):
        assert served.ask(path, host)[0] == 403, path
        assert served.ask(path, host, *_UPGRADE.items())[0] == 403, path


def test_what_is_no_http_writes_nothing_to_the_terminal(served: Served) -> None:
    for sent in (b"\0\xff\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"):
        with socket.create_connection(("localhost", served.port), timeout=WAIT) as sock:
            sock.sendall(sent)
            assert sock.recv(1 << 16).startswith(b"HTTP/1.") and served.said() == "", sent


def test_a_port_at_which_somebody_listens(served: Served) -> None:
    done = run_python("-m", "meshrt", "top", str(served.program), "--serve", "--port", str(served.port))
    assert done.returncode == 1 and done.stderr == (
        f"meshrt top: cannot listen at port {served.port} of localhost: Address already in use; "
        "choose another (--port, --host)\n"
    )


def test_no_cookie_is_set_and_no_other_site_is_told(served: Served) -> None:
    """A browser sends the cookies of a host to all of its ports, and the address to where a page's parts are."""
    status, headers, _ = served.ask(served.path, ("Host", f"localhost:{served.port}"))
    assert status == 200 and "set-cookie" not in headers
    assert headers["referrer-policy"] == "no-referrer" and headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["x-frame-options"] == "DENY"
    assert "font-src 'self'" in headers["content-security-policy"]


@pytest.mark.parametrize("upgrade", [False, True], ids=["page", "websocket"])
def test_a_name_of_another_site_that_points_here(upgrade: bool, served: Served) -> None:
    """A page of that site would reach this port as its own (DNS rebinding), if it knew the secret."""
    path, more = (f"{served.path}ws", tuple(_UPGRADE.items())) if upgrade else (served.path, ())
    answered = 101 if upgrade else 200
    known = ["localhost:9000"] if upgrade else ["localhost", f"127.0.0.1:{served.port}", "[::1]:9000", "LOCALHOST:80"]
    for host in known:
        assert served.ask(path, ("Host", host), *more)[0] == answered, host
    for host in ("evil.example", f"evil.example:{served.port}", "localhost.evil.example", "127.0.0.1.evil.example", ""):
        status, _, body = served.ask(path, ("Host", host), *more)
        assert status == 403 and "open the address that meshrt top --serve has printed" in body, host
    for hosts in ((), (("Host", "localhost"), ("Host", "evil.example"))):
        assert served.ask(path, *hosts, *more)[0] in (400, 403), hosts


@pytest.mark.slow
@pytest.mark.parametrize("upgrade", [False, True], ids=["page", "websocket"])
def test_a_page_of_another_site(upgrade: bool, served: Served) -> None:
    path, more = (f"{served.path}ws", tuple(_UPGRADE.items())) if upgrade else (served.path, ())
    host = f"localhost:{served.port}"
    assert served.ask(path, ("Host", host), ("Origin", f"http://{host}"), *more)[0] == (101 if upgrade else 200)
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost:1",
        "http://localhost",
        f"http://127.0.0.1:{served.port}",
        "",
    ):
        status, _, body = served.ask(path, ("Host", host), ("Origin", origin), *more)
        assert (status, body) == (403, "the request comes from a page of another site"), origin
