"""``meshrt top --serve``: the screen in a browser. Needs textual-serve.

Each browser gets a screen, and a process, of its own. The address has a secret in it, which a cookie keeps from then
on: other users of this machine reach the port too, and other pages that the browser shows.
"""

from __future__ import annotations

import argparse
import hmac
import secrets
import shlex
import sys

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from meshrt.inspect.commands import write_out
from meshrt.inspect.programs import command_of
from meshrt.transport.tools import Program

__all__ = ["serve"]

_TOKEN = "token"
_COOKIE = "meshrt-top"


class _Server(Server):
    """A server that answers whoever has the secret.

    Args:
        command: What shows the screen.
    """

    def __init__(self, command: str, host: str, port: int, title: str) -> None:
        super().__init__(command, host=host, port=port, title=title)
        self._secret = secrets.token_urlsafe(24)
        #: Where it is found by a browser.
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}/?{_TOKEN}={self._secret}"

    async def make_app(self) -> web.Application:
        """Return what answers."""
        app = await self._make_app()
        app.middlewares.append(self._admit)
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Say nothing: it cannot be reached yet."""

    def tell(self, _where: str) -> None:
        """It listens."""
        write_out(sys.stdout, f"{self.address}\nCtrl-C ends this; whoever has the address sees the program\n")

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.query.get(_TOKEN) or request.cookies.get(self._cookie(), "")
        if not hmac.compare_digest(given.encode(), self._secret.encode()):
            raise web.HTTPForbidden(text="open the address that meshrt top --serve has printed, all of it")
        # The page names its parts by this: it is found under other names too, through a tunnel, say.
        self.public_url = f"{request.scheme}://{request.host}"
        response = await handler(request)
        if not response.prepared:
            response.set_cookie(self._cookie(), self._secret, httponly=True, samesite="Strict")
        return response

    def _cookie(self) -> str:
        return f"{_COOKIE}-{self.port}"  # a browser sends those of all ports of a host


def serve(program: Program, given: argparse.Namespace, host: str, port: int) -> None:
    """Serve until Ctrl-C. Raises OSError: it cannot listen there."""
    words = [sys.executable, "-m", "meshrt", "top", program.run_id, "--sort", given.sort, "--every", f"{given.every:g}"]
    words += ["--reverse"] * given.reverse
    words += [f"{name}={value}" for name, value in (("--ranks", given.ranks), ("--actor", given.actor)) if value]
    server = _Server(shlex.join(words), host, port, f"meshrt top: {command_of(program)}")
    web.run_app(server.make_app(), host=host, port=port, print=server.tell, access_log=None)
