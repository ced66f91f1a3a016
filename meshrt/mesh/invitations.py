"""How agents on other machines join the program: by the port of the root, with an invitation for each, or one for all.

No port is open, and no certificate exists, before an engine asks for the first invitation.

An invitation for all has a secret and, where that is known before, a certificate of its own.
They let an agent in; those of the program it is told behind that, as every agent is.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import os
import queue
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Arrival, Refusal
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import OwnMesh
from meshrt.mesh.run import Run
from meshrt.store.machine import machine_of
from meshrt.transport.connecting import link_of, secured
from meshrt.transport.dataport import DataPort, listen
from meshrt.transport.entrance import Entrance
from meshrt.transport.link import Connection, Link
from meshrt.wire.addresses import Port
from meshrt.wire.certificate import Certificate
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import ROLE_AGENT, Secret, ServerHandshake
from meshrt.wire.preface import host_name, host_proof
from meshrt.wire.tree import Bye, Invited
from meshrt.wire.versions import Versions, difference, own_versions

__all__ = ["Invitations", "known_invitation", "make_certificate"]

#: What agents ask for that join by an invitation for all.
_ALL = "agents"


class Invitation:
    """For one agent. Any thread.

    Args:
        certificate: Of the program.
    """

    def __init__(self, run: Run, certificate: Certificate) -> None:
        self.machine: int = secrets.randbits(62) | 1
        self.name: str = f"agent/{self.machine:x}"
        #: Whether the agent is not to join any more.
        self.withdrawn: bool = False
        self._run = run
        self._certificate = certificate
        self._links: queue.SimpleQueue[Link | SpawnError] = queue.SimpleQueue()

    def text(self) -> bytes:
        """Return it for the agent to read. A secret."""
        return control_frame(Invited(self.name, self._run.ports, self._run.secret, self._certificate))

    def accept(self, seconds: float) -> Link | None:
        """Wait for the agent; returns its link, None: it has not come.

        Raises:
            SpawnError: It has come, and cannot work for this program: it has another version.
        """
        try:
            came = self._links.get(seconds > 0, seconds)
        except queue.Empty:
            return None
        if isinstance(came, SpawnError):
            raise came
        return came

    def joined(self, link: Link) -> None:
        """The agent has proved the secret. On the loop."""
        if self.withdrawn:
            link.close()
        else:
            self._links.put(link)

    def refuse(self, why: str) -> None:
        """The agent has come, and is not let in. On the loop."""
        self._links.put(SpawnError(why))

    def withdraw(self) -> None:
        """The agent is not to join any more; one that has done so meanwhile sees the end of its link."""
        self.withdrawn = True
        link = None
        with contextlib.suppress(SpawnError):
            link = self.accept(0.0)
        if link is not None:
            link.close()


class OpenInvitation:
    """For any number of agents. Any thread.

    Args:
        secret: What they prove.
        certificate: What they show.
    """

    def __init__(self, run: Run, secret: bytes, certificate: Certificate) -> None:
        self.secret = Secret(secret)
        self.certificate = certificate
        self._run = run
        self._arrivals: queue.SimpleQueue[Arrival | Refusal] = queue.SimpleQueue()
        self._links: list[Link] = []

    def text(self) -> bytes:
        """Return it for the agents to read. A secret."""
        return control_frame(Invited(_ALL, self._run.ports, self.secret, self.certificate))

    def accept(self, seconds: float) -> Arrival | Refusal | None:
        """Wait for the next agent; None: none has come."""
        try:
            return self._arrivals.get(seconds > 0, seconds)
        except queue.Empty:
            return None

    def joined(self, who: str, link: Link) -> None:
        """An agent has proved the secret. On the loop."""
        self._links.append(link)
        self._arrivals.put(Arrival(who, secrets.randbits(62) | 1, link))

    def refuse(self, who: str, why: str) -> None:
        """An agent has proved the secret, and is not let in. On the loop."""
        self._arrivals.put(Refusal(who, why))

    def end(self) -> None:
        """The program ends, also for agents that no mesh uses. On the loop."""
        for link in self._links:
            link.send([control_frame(Bye())])
            link.close()


class Invitations:
    """The program, as engines see it. Any thread, unless said otherwise.

    Args:
        run: Gets the certificate, and the addresses of the port.
        loop: Serves the port.
        own: The meshes of the script itself, which ranks of other machines reach by the same port.
        announce: Writes a line on the terminal.
        relay: Takes the connections that ask for a way to a rank (`meshrt.mesh.relays`).
    """

    def __init__(
        self,
        run: Run,
        loop: RootLoop,
        own: Mapping[str, OwnMesh],
        announce: Callable[[str], None],
        relay: Callable[[str, socket.socket], None],
    ) -> None:
        self.run_id = run.run_id
        self.directory = os.fsencode(run.directory)
        self._run = run
        self._loop = loop
        self._own = own
        self.announce = announce
        self._relay = relay
        self._lock = threading.Lock()
        self._marks = 0
        #: Hosts whose Python differs a little, which was said.
        self._told: set[str] = set()
        self._invited: dict[str, Invitation] = {}
        self._open: OpenInvitation | None = None
        self._entrance: Entrance[Connection]
        self._entrance_for_all: Entrance[Connection]

    def new_mark(self) -> str:
        """Return the mark of a new agent."""
        with self._lock:
            self._marks += 1
            return f"{self.run_id}.{self._marks}"

    def invite(self) -> Invitation:
        """Return what an agent on another machine joins with. Raises OSError: no port can be opened."""
        with self._lock:
            invitation = Invitation(self._run, self._certificate(0))
            self._invited[invitation.name] = invitation
        return invitation

    def invite_all(self, secret: bytes = b"", port: int = 0) -> OpenInvitation:
        """Return what any number of agents join with. Once. Raises OSError: the port cannot be opened."""
        with self._lock:
            certificate = self._certificate(port)
            proved = _derived(secret) if secret else (secrets.token_bytes(32), certificate)
            invitation = OpenInvitation(self._run, *proved)
            self._loop.post(functools.partial(self._serve_all, invitation))
        return invitation

    def _certificate(self, port: int) -> Certificate:
        """Return that of the program. The first time, it is made, and the port is opened."""
        if self._run.certificate is None:
            certificate = make_certificate()
            listener, self._run.ports = listen(port)
            self._run.certificate = certificate
            self._loop.post(functools.partial(self._serve, listener))
            self._loop.begin()  # the first mesh waits for its agents before it begins the loop
        return self._run.certificate

    # -- on the loop

    def _serve_all(self, invitation: OpenInvitation) -> None:
        def let_in(sock: Connection, handshake: ServerHandshake) -> None:
            invitation.joined(handshake.endpoint.partition("/")[2], link_of(sock, control_decoder()))

        self._entrance_for_all = self._make_entrance(
            invitation.secret, let_in, lambda name: name.partition("/")[0] == _ALL
        )
        self._open = invitation
        self._loop.on_end.append(self._entrance_for_all.close)
        self._loop.on_end.append(invitation.end)

    def _make_entrance(
        self, secret: Secret, let_in: Callable[[Connection, ServerHandshake], None], serves: Callable[[str], bool]
    ) -> Entrance[Connection]:
        loop = self._loop.running
        return Entrance(
            loop,
            None,
            "a host agent",
            secret,
            ROLE_AGENT,
            let_in,
            self._loop.call_later,
            serves=serves,
            refuses=self._refuses,
        )

    def _serve(self, listener: socket.socket) -> None:
        self._entrance = self._make_entrance(self._run.secret, self._let_in, self._expects)
        port = DataPort(self._loop.running, listener, self._give, self._loop.call_later)
        self._loop.on_end.append(port.close)
        self._loop.on_end.append(self._entrance.close)

    def _give(self, name: str, sock: socket.socket, accepted: float) -> None:
        certificate = self._run.certificate
        match name.split("/"):
            case ["agent", _] if certificate is not None:
                self._entrance.admit(secured(sock, certificate), accepted)
            case [each] if each == _ALL and self._open is not None:
                self._entrance_for_all.admit(secured(sock, self._open.certificate), accepted)
            case ["rank", mesh_id, "0"] if certificate is not None and mesh_id in self._own:
                self._own[mesh_id].admit(sock, certificate, accepted)
            case ["relay", _]:
                self._relay(name, sock)
            case _:
                with sock, contextlib.suppress(OSError):
                    if name.startswith(host_name(machine_of(0), 0)):  # of the script's own actors
                        sock.send(host_proof(self._run.secret, name))

    def _expects(self, name: str) -> bool:
        invitation = self._invited.get(name)
        return invitation is not None and not invitation.withdrawn

    def _refuses(self, name: str, said: str) -> str:
        """Return why an agent that has proved the secret cannot work for this program; ""."""
        agent, own = Versions.of(said), own_versions()
        why = difference(agent, own)
        invitation = self._invited.get(name)
        if why and invitation is not None:
            invitation.refuse(why)
        elif why and self._open is not None:
            self._open.refuse(name.partition("/")[2], why)
        elif agent.python != own.python and agent.host not in self._told:
            self._told.add(agent.host)
            self.announce(f"host {agent.host} runs Python {agent.python}, the script Python {own.python}")
        return why

    def _let_in(self, sock: Connection, handshake: ServerHandshake) -> None:
        invitation = self._invited.pop(handshake.endpoint)
        invitation.joined(link_of(sock, control_decoder()))


def known_invitation(ports: Sequence[Port], secret: bytes) -> bytes:
    """Return the text of an invitation for all that begins with a secret which the agents have.

    Args:
        ports: Where the root may be reached.
        secret: As for `Invitations.invite_all`.
    """
    return control_frame(Invited(_ALL, ports, *_derived(secret)))


def _derived(secret: bytes) -> tuple[bytes, Certificate]:
    """Return what follows from a secret: what is proved, and a certificate, the same on each machine."""
    seed = hmac.digest(secret, b"meshrt certificate", "sha256")
    return hmac.digest(secret, b"meshrt proof", "sha256"), make_certificate(seed)


def make_certificate(seed: bytes = b"") -> Certificate:
    """Return a certificate, signed by itself, with its key. Only programs on several machines need one.

    Args:
        seed: 32 bytes that the certificate is made of: all of it follows from them. b"": a new one.
    Raises:
        UsageError: What makes it is not installed.
    """
    import datetime  # start-up: as said

    try:
        from cryptography import x509  # start-up: as said
        from cryptography.hazmat.primitives import hashes, serialization  # start-up: as said
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519  # start-up: as said
        from cryptography.x509.oid import NameOID  # start-up: as said
    except ImportError as error:
        raise UsageError(
            f"host {socket.gethostname()} cannot create the certificate of the program: this requires the "
            f"package cryptography: {error}; install it for {sys.executable}"
            + (". Each host needs the package if a secret file is used" if seed else "")
        ) from None

    key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
    if seed:
        key, algorithm, serial = ed25519.Ed25519PrivateKey.from_private_bytes(seed), None, 1
    else:
        key, algorithm, serial = ec.generate_private_key(ec.SECP256R1()), hashes.SHA256(), x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "meshrt")])
    # The clocks of machines may be wrong by years: the certificate is pinned, and its dates mean nothing.
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(datetime.datetime(2000, 1, 1))
        .not_valid_after(datetime.datetime(2200, 1, 1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, algorithm)
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Certificate(made.public_bytes(pem), secret)
