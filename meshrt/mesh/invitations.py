"""How agents on other machines join the program: by the port of the root, with an invitation for each.

No port is open, and no certificate exists, before an engine asks for the first invitation.
"""

from __future__ import annotations

import functools
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Mapping

from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import OwnMesh
from meshrt.mesh.run import Run
from meshrt.store.machine import be_apart
from meshrt.transport.connecting import link_of, secured
from meshrt.transport.dataport import DataPort, listen
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import Connection, Link
from meshrt.transport.liveness import ROOT_SECONDS, end_when_silent
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_AGENT, ServerHandshake
from meshrt.wire.tree import Invited

__all__ = ["Invitations", "make_certificate"]


class Invitation:
    """For one agent. Any thread.

    Args:
        certificate: Of the program.
    """

    def __init__(self, run: Run, certificate: Certificate) -> None:
        self.machine = secrets.randbits(62) | 1
        self.name = f"agent/{self.machine:x}"
        #: Whether the agent is not to join any more.
        self.withdrawn = False
        self._run = run
        self._certificate = certificate
        self._links: queue.SimpleQueue[Link] = queue.SimpleQueue()

    def text(self) -> bytes:
        """Return it for the agent to read. A secret."""
        return control_frame(
            Invited(
                self.name, self._run.ports, self._run.secret, (self._certificate.certificate, self._certificate.key)
            )
        )

    def accept(self, seconds: float) -> Link | None:
        """Wait for the agent; returns its link, None: it has not come."""
        try:
            return self._links.get(seconds > 0, seconds)
        except queue.Empty:
            return None

    def joined(self, link: Link) -> None:
        """The agent has proved the secret. On the loop."""
        if self.withdrawn:
            link.close()
        else:
            self._links.put(link)

    def withdraw(self) -> None:
        """The agent is not to join any more; one that has done so meanwhile sees the end of its link."""
        self.withdrawn = True
        link = self.accept(0.0)
        if link is not None:
            link.close()


class Invitations:
    """The program, as engines see it. Any thread, unless said otherwise.

    Args:
        run: Gets the certificate, and the addresses of the port.
        loop: Serves the port.
        own: The meshes of the script itself, which ranks of other machines reach by the same port.
        announce: Writes a line on the terminal.
    """

    def __init__(
        self, run: Run, loop: RootLoop, own: Mapping[str, OwnMesh], announce: Callable[[str], None]
    ) -> None:
        self.run_id = run.run_id
        self.directory = os.fsencode(run.directory)
        self.announce = announce
        self._run = run
        self._loop = loop
        self._own = own
        self._lock = threading.Lock()
        self._marks = 0
        self._invited: dict[str, Invitation] = {}
        self._entrance: Entrance[Connection]

    def new_mark(self) -> str:
        """Return the mark of a new agent."""
        with self._lock:
            self._marks += 1
            return f"{self.run_id}.{self._marks}"

    def invite(self) -> Invitation:
        """Return what an agent on another machine joins with. Raises OSError: no port can be opened."""
        with self._lock:
            if self._run.certificate is None:
                listener, self._run.ports = listen()
                self._run.certificate = make_certificate()
                be_apart()
                self._loop.post(functools.partial(self._serve, listener))
                self._loop.begin()  # the first mesh waits for its agents before it begins the loop
            invitation = Invitation(self._run, self._run.certificate)
            self._invited[invitation.name] = invitation
        return invitation

    # -- on the loop

    def _serve(self, listener: socket.socket) -> None:
        loop = self._loop.running
        self._entrance = Entrance(
            loop,
            None,
            "a host agent",
            self._run.secret,
            ROLE_AGENT,
            self._let_in,
            self._loop.call_later,
            serves=self._expects,
        )
        port = DataPort(loop, listener, self._give, self._loop.call_later)
        self._loop.on_end.append(functools.partial(be_apart, False))  # another program may follow in this process
        self._loop.on_end.append(port.close)
        self._loop.on_end.append(self._entrance.close)

    def _give(self, name: str, sock: socket.socket) -> None:
        certificate = self._run.certificate
        match name.split("/"):
            case ["agent", _] if certificate is not None:
                end_when_silent(sock, ROOT_SECONDS)
                self._entrance.admit(secured(sock, certificate))
            case ["rank", mesh_id, "0"] if certificate is not None and mesh_id in self._own:
                self._own[mesh_id].admit(sock, certificate)
            case _:
                sock.close()

    def _expects(self, name: str) -> bool:
        invitation = self._invited.get(name)
        return invitation is not None and not invitation.withdrawn

    def _let_in(self, sock: Connection, handshake: ServerHandshake) -> None:
        invitation = self._invited.pop(handshake.endpoint)
        invitation.joined(link_of(sock, control_decoder()))


def make_certificate() -> Certificate:
    """Return a new certificate, signed by itself, with its key. Only programs on several machines need one."""
    import datetime  # start-up: as said

    from cryptography import x509  # start-up: as said
    from cryptography.hazmat.primitives import hashes, serialization  # start-up: as said
    from cryptography.hazmat.primitives.asymmetric import ec  # start-up: as said
    from cryptography.x509.oid import NameOID  # start-up: as said

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "meshrt")])
    # The clocks of machines may be wrong by years: the certificate is pinned, and its dates mean nothing.
    valid = datetime.timedelta(days=3650)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - valid)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(made.public_bytes(pem), secret)
