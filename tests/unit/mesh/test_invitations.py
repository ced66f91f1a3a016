"""Agents join the program at its port, by an invitation each; others do not."""

from __future__ import annotations

import functools
import platform
import socket
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from meshrt.engine.joining import check, join
from meshrt.errors import SpawnError, UsageError
from meshrt.mesh.engine import Arrival, Refusal
from meshrt.mesh.invitations import Invitations, known_invitation, make_certificate
from meshrt.mesh.loop import RootLoop
from meshrt.mesh.registry import OwnMesh
from meshrt.transport.dataport import BIND
from meshrt.transport.link import Link
from meshrt.wire.addresses import HostAddress
from meshrt.wire.control import control_frame
from meshrt.wire.frames import control_decoder
from meshrt.wire.handshake import Secret
from meshrt.wire.preface import preface
from meshrt.wire.tree import FROM_ROOT, INVITED, Bye, Invited
from meshrt.wire.versions import own_versions
from tests.support.free_port import free_port
from tests.support.waiting import wait_until


class Bench:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.loop = RootLoop()
        self.relayed: list[str] = []
        run: Any = SimpleNamespace(run_id="cafe", directory="/d", secret=Secret(b"s" * 32), certificate=None, ports=())
        self.run: Any = run
        self.own: dict[str, OwnMesh] = {}
        self.invitations = Invitations(run, self.loop, self.own, self.said.append, self.relay)
        self.loop.begin()

    def relay(self, name: str, sock: socket.socket) -> None:
        self.relayed.append(name)
        sock.close()

    def invited(self) -> tuple[Any, Invited]:
        invitation = self.invitations.invite()
        (frame,) = control_decoder().receive_data(invitation.text())
        return invitation, INVITED.decode(frame.payload)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv(BIND, "127.0.0.1")
    made = Bench()
    yield made
    made.loop.end()


def test_nothing_is_open_before_someone_is_invited(bench: Bench) -> None:
    before = bench.run.certificate, bench.run.ports
    bench.invited()
    assert before == (None, ()) and bench.run.certificate is not None
    ((address, port),) = bench.run.ports
    assert address == "127.0.0.1" and port > 0


def test_without_the_package_that_makes_certificates_no_port_is_open(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UsageError, match=f"requires the package cryptography: .*; install it for {sys.executable}$"):
        bench.invitations.invite()
    assert (bench.run.certificate, bench.run.ports) == (None, ())


def test_an_agent_joins_and_each_side_hears_the_other(bench: Bench) -> None:
    invitation, _ = bench.invited()
    link, leftover = join(invitation.text())
    theirs = invitation.accept(20)
    assert theirs is not None and leftover == b""
    theirs.send([control_frame(Bye())])
    wait_until(lambda: link.read(), 20)
    link.send([control_frame(Bye())])
    wait_until(lambda: theirs.read(), 20)
    link.close()
    theirs.close()


def test_each_joins_by_its_own_and_once(bench: Bench) -> None:
    (first, _), (second, _) = bench.invited(), bench.invited()
    assert first.machine != second.machine and bench.invitations.new_mark() != bench.invitations.new_mark()
    link, _ = join(second.text())
    theirs = second.accept(20)
    assert theirs is not None and first.accept(0.0) is None
    assert len({first.name, second.name, bench.invited()[0].name}) == 3
    with pytest.raises(ConnectionError, match=r"cannot be reached at any of its addresses: 127.0.0.1 port \d+: "):
        join(second.text())
    link.close()
    theirs.close()


def test_one_whose_invitation_was_withdrawn_does_not_join_or_sees_the_end(bench: Bench) -> None:
    invitation, _ = bench.invited()
    link, _ = join(invitation.text())
    invitation.withdraw()
    wait_until(link.at_end, 20)
    link.close()
    other, _ = bench.invited()
    other.withdraw()
    with pytest.raises(ConnectionError, match="cannot be reached"):
        join(other.text())


def test_who_has_another_secret_or_certificate_does_not_join(bench: Bench) -> None:
    invitation, invited = bench.invited()
    other = make_certificate()
    for wrong in (changed(invited, secret=b"x" * 32), changed(invited, certificate=(other.certificate, other.key))):
        with pytest.raises(ConnectionError, match="cannot be reached"):
            join(control_frame(wrong))
    assert invitation.accept(0.0) is None


def test_connections_for_actors_of_the_script_go_to_them_and_those_for_other_ranks_nowhere(bench: Bench) -> None:
    given: list[Any] = []
    bench.own["own"] = OwnMesh(lambda: HostAddress(1, 0, b"/d"), lambda *what: given.append(what), [])
    bench.invited()
    for name in ("rank/other/0", "rank/own/1", "elsewhere"):
        with socket.create_connection(bench.run.ports[0], 20) as sock:
            sock.sendall(preface(name))
            assert sock.recv(1) == b"", name
    with socket.create_connection(bench.run.ports[0], 20) as sock:
        sock.sendall(preface("rank/own/0") + b"behind it")
        wait_until(lambda: given, 20)
        ((theirs, certificate, accepted),) = given
        assert certificate == bench.run.certificate and accepted <= time.monotonic()
        theirs.settimeout(20)
        assert theirs.recv(100) == b"behind it"
        theirs.close()


def test_the_next_address_is_tried(bench: Bench) -> None:
    invitation, invited = bench.invited()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        closed = nobody.getsockname()
    link, _ = join(control_frame(changed(invited, ports=[closed, *invited.ports])))
    theirs = invitation.accept(20)
    assert theirs is not None
    link.close()
    theirs.close()


def test_a_root_that_does_not_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshrt.engine.joining._SECONDS", 0.2)
    _, invited = bench.invited()
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ConnectionError, match="no answer in time"):
        join(control_frame(changed(invited, ports=[silent.getsockname()])))


@pytest.mark.parametrize("text", [b"", b"{}", b"\x00" * 30, control_frame(Bye())])
def test_what_is_no_invitation(text: bytes) -> None:
    with pytest.raises(UsageError, match="is not a valid invitation"):
        join(text)


def _has_read(link: Link) -> bool:
    return bool(link.read())


def _has_ended(link: Link) -> bool:
    return link.read() is None


def test_any_number_join_by_one_for_all(bench: Bench) -> None:
    invitation = bench.invitations.invite_all()
    links = [join(invitation.text(), f"{index}/0/n{index}")[0] for index in range(3)]
    arrivals = [invitation.accept(20) for _ in links]
    joined = [each for each in arrivals if isinstance(each, Arrival)]
    assert [each.who for each in joined] == ["0/0/n0", "1/0/n1", "2/0/n2"]
    assert len({each.machine for each in joined}) == 3
    alone, _ = bench.invited()
    links.append(join(alone.text())[0])
    other = alone.accept(20)
    assert other is not None and invitation.accept(0.0) is None
    for each, link in zip(joined, links[:3], strict=True):
        link.send([control_frame(Bye())])
        wait_until(functools.partial(_has_read, each.link), 20)
    bench.loop.end()
    other.close()
    for link in links:
        wait_until(functools.partial(_has_ended, link), 20)
        link.close()


def test_those_that_no_mesh_uses_are_told_of_the_end(bench: Bench) -> None:
    invitation = bench.invitations.invite_all()
    link, _ = join(invitation.text(), "1/0/n1")
    assert invitation.accept(20) is not None
    bench.loop.end()
    frame = (link.read() or [])[0]
    assert isinstance(FROM_ROOT.decode(frame.payload), Bye)
    link.close()


def test_a_look_at_the_root_is_no_joining(bench: Bench) -> None:
    invitation = bench.invitations.invite_all()
    check(invitation.text())
    assert invitation.accept(0.1) is None
    with pytest.raises(ConnectionError, match="cannot be reached"):
        check(known_invitation(bench.run.ports, b"another secret"))


def test_a_known_secret_takes_the_place_of_an_invitation(bench: Bench) -> None:
    port = free_port()
    invitation = bench.invitations.invite_all(b"known", port)
    assert bench.run.ports == (("127.0.0.1", port),)
    link, _ = join(known_invitation([("localhost", port)], b"known"), "1/0/n1")
    assert invitation.accept(20) is not None
    link.close()
    assert make_certificate(b"s" * 32) == make_certificate(b"s" * 32) != make_certificate(b"t" * 32)
    assert bench.run.secret not in invitation.text() and b"known" not in invitation.text()


def test_who_asks_for_a_way_is_given_to_the_relays_and_others_are_closed(bench: Bench) -> None:
    bench.invited()
    for name in ("relay/abc", "rank/m/0"):
        with socket.create_connection(bench.run.ports[0]) as sock:
            sock.sendall(preface(name))
            sock.settimeout(20)
            assert sock.recv(1) == b""
    assert bench.relayed == ["relay/abc"]


def test_of_several_addresses_the_first_that_proves_itself_is_taken(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is silent, and one of another program: neither is waited for."""
    monkeypatch.setattr("meshrt.engine.joining._SECONDS", 1000.0)
    invitation, invited = bench.invited()
    other = Bench()
    other.invited()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ports = [silent.getsockname(), *other.run.ports, *invited.ports]
        link, _ = join(control_frame(changed(invited, ports=ports)))
    theirs = invitation.accept(20)
    assert theirs is not None
    link.close()
    theirs.close()
    other.loop.end()


def test_an_agent_of_another_version_is_refused_and_both_sides_are_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "meshrt.engine.joining.own_versions", lambda: own_versions()._replace(python="2.7.1", host="n1")
    )
    invitation, _ = bench.invited()
    why = "host n1 runs Python 2.7.1, the script Python "
    with pytest.raises(UsageError, match=why):
        join(invitation.text())
    with pytest.raises(SpawnError, match=why):
        invitation.accept(20)
    for_all = bench.invitations.invite_all()
    with pytest.raises(UsageError, match=why):
        join(for_all.text(), "1/0/n1")
    refused = for_all.accept(20)
    assert isinstance(refused, Refusal) and refused.who == "1/0/n1" and refused.why.startswith(why)
    assert bench.said == []


def test_another_patch_level_is_said_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    python = ".".join([*platform.python_version_tuple()[:2], "99"])
    monkeypatch.setattr("meshrt.engine.joining.own_versions", lambda: own_versions()._replace(python=python, host="n1"))
    for _ in range(2):
        invitation, _invited = bench.invited()
        link, _ = join(invitation.text())
        theirs = invitation.accept(20)
        assert theirs is not None
        link.close()
        theirs.close()
    assert bench.said == [f"host n1 runs Python {python}, the script Python {platform.python_version()}"]
