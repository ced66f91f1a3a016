"""``meshrt top --serve``: the screen in a browser. Needs textual-serve.

Each browser gets a screen, and a process, of its own. The address has a secret in its path, as other users of this
machine reach the port too. There is no cookie: a browser sends a cookie to all ports of a host, also to those of other
users.

A request is answered only if

* its path begins with the secret;
* its ``Host`` is an address, or a name of this machine (``localhost``, or the name that ``--host`` gives): a page of
  another site cannot reach this port by a name of its own that resolves to this machine (DNS rebinding);
* its ``Origin``, if the browser sends one, is this server. That includes the request for a websocket.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import ipaddress
import logging
import os
import secrets
import shlex
import sys
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from textual_serve.server import Server

from meshrt.commandline.command import Arguments
from meshrt.inspect.programs import command_of
from meshrt.show.streams import write_out
from meshrt.transport.helper import SAFE_DIRECTORY, helper_command, helper_environment
from meshrt.transport.tools import Program

__all__ = ["admits", "serve"]

_CANNOT_LISTEN = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)
#: Other sites cannot use the answers and do not learn the address; the page loads nothing from them (the template of
#: textual-serve names a font of one).
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; font-src 'self' data:; style-src 'self' 'unsafe-inline'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def admits(hosts: list[str], origins: list[str], listens: str) -> str:
    """Return why a request is rejected; "" if it is admitted.

    Args:
        hosts: All ``Host`` headers of the request.
        origins: All ``Origin`` headers of the request; a browser sends one with each websocket.
        listens: The name or address of ``--host``.
    """
    if len(hosts) != 1:
        return "expected one Host header"
    host = hosts[0].lower()
    name = _name(host)
    if not (name == "localhost" or name.endswith(".localhost") or name == listens.lower() or _is_address(name)):
        return f"the host name {name!r} is not allowed; open the address that meshrt top --serve has printed"
    for origin in origins:
        if origin.lower().partition("://")[2] != host:
            return "the request comes from a page of another site"
    return ""


def _name(host: str) -> str:
    """Return the name of ``name:port``, of ``[address]:port`` too; "" where it is malformed."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(f"//{host}")
        if parts.netloc == host and parts.username is None:
            return parts.hostname or ""
    return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_no_noise(record: logging.LogRecord) -> bool:
    """Whether a record is not about bytes that are not HTTP: every user of this machine can send those."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class _Server(Server):
    """A server for browsers that have the secret.

    Args:
        command: Command line of the screen.
    """

    def __init__(self, command: str, host: str, port: int, title: str) -> None:
        super().__init__(command, host=host, port=port, title=title)
        self._secret = secrets.token_urlsafe(24)
        #: The address for a browser.
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}/{self._secret}/"

    async def make_app(self) -> web.Application:
        """Return the application, with the middleware that admits requests."""
        app = web.Application(middlewares=[self._admit])
        app.add_subapp(f"/{self._secret}", await self._make_app())
        return app

    async def on_startup(self, app: web.Application) -> None:
        """Print nothing: the server cannot be reached yet."""

    def tell(self, _where: str) -> None:
        """Print the address: the server listens."""
        write_out(sys.stdout, f"{self.address}\nCtrl-C ends this server; all who have the address see the program\n")

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.path.split("/")[1]
        if not hmac.compare_digest(given.encode(errors="replace"), self._secret.encode()):
            raise web.HTTPForbidden(text="open the complete address that meshrt top --serve has printed")
        why = admits(request.headers.getall("Host", []), request.headers.getall("Origin", []), self.host)
        if why:
            raise web.HTTPForbidden(text=why)
        # The page refers to its parts by this URL: the server may be reached at other ports too, as in a tunnel.
        self.public_url = f"{request.scheme}://{request.host}"
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response


def serve(program: Program, given: Arguments, host: str, port: int) -> None:
    """Serve until Ctrl-C. Raises OSError: the address cannot be bound."""
    words = ["top", program.run_id, "--sort", given["sort"], "--every", f"{given['every']:g}"]
    words += ["--reverse"] * given["reverse"]
    words += [f"{name}={value}" for name, value in (("--ranks", given["ranks"]), ("--actor", given["actor"])) if value]
    # textual-serve starts the screen, with the environment and the working directory of this process.
    os.environ.update(helper_environment(program.directory))
    os.chdir(SAFE_DIRECTORY)
    logging.getLogger("aiohttp.server").addFilter(_is_no_noise)
    server = _Server(shlex.join(helper_command(*words)), host, port, f"meshrt top: {command_of(program)}")
    try:
        web.run_app(server.make_app(), host=host, port=port, print=server.tell, access_log=None)
    except OSError as error:
        if error.errno not in _CANNOT_LISTEN:
            raise
        why = os.strerror(error.errno)
        raise OSError(f"cannot listen at port {port} of {host}: {why}; choose another (--port, --host)") from error
