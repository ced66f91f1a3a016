"""How hosts find each other: the order of the ways, and what is taken for the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.engine.joining import invited_by
from meshrt.engine.launch.launchers import Launched
from meshrt.engine.launch.rendezvous import KnownRoot, Rendezvous, choose, read_secret
from meshrt.engine.launch.shared_file import SharedFile
from meshrt.engine.launch.torch_store import TorchStore
from meshrt.errors import UsageError
from meshrt.mesh.invitations import known_invitation
from meshrt.transport.dataport import BIND
from meshrt.wire.handshake import Secret
from tests.unit.mesh.test_invitations import Bench

FOUND = Launched("SLURM", 1, 2, "slurm-12-0")
SECRET = Secret(b"0123456789abcdef")
STORE = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(b"0123456789abcdef\n")
    path.chmod(0o440)
    return path


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv(BIND, "127.0.0.1")
    made = Bench()
    yield made
    made.loop.end()


def test_the_order_of_the_ways(secret: Path, tmp_path: Path) -> None:
    everything = {"MESHRT_ROOT": "n1:40000", "MESHRT_SECRET_FILE": str(secret), **STORE, "MESHRT_RENDEZVOUS": "/x"}
    known = choose(FOUND, everything, lambda: True)
    assert known == Rendezvous(KnownRoot(("n1", 40000), SECRET), SECRET, 40000)
    assert "0123" not in repr(known)
    del everything["MESHRT_ROOT"]
    store = choose(FOUND, everything, lambda: True)
    assert isinstance(store.way, TorchStore) and store.secret and not store.port
    assert choose(FOUND, {**STORE, "MESHRT_RENDEZVOUS": "/x"}, lambda: False) == Rendezvous(
        SharedFile(Path("/x/slurm-12-0"))
    )


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, r"gives the job no name; expected one of: MESHRT_ROOT=HOST:PORT and .* MESHRT_JOB=NAME \(--job\)"),
        ({"MESHRT_ROOT": "n1:40000"}, r"MESHRT_ROOT is set without a secret: set MESHRT_SECRET_FILE"),
        ({"MESHRT_SECRET_FILE": "/nowhere"}, "the secret file /nowhere cannot be read: No such file"),
    ],
)
def test_no_way(variables: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        choose(Launched("MPI", 1, 2), variables, lambda: False)


@pytest.mark.parametrize("root", ["n1", ":40000", "n1:", "n1:http", "n1:0", "n1:70000"])
def test_addresses_that_are_none(root: str, secret: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a valid address; expected for example train-0\.train:40000"):
        choose(FOUND, {"MESHRT_ROOT": root, "MESHRT_SECRET_FILE": str(secret)})


def test_an_address_of_ipv6(secret: Path) -> None:
    way = choose(FOUND, {"MESHRT_ROOT": "[fd07::1]:40000", "MESHRT_SECRET_FILE": str(secret)}).way
    assert isinstance(way, KnownRoot) and way.root == ("fd07::1", 40000)


def test_a_secret_that_others_can_read_or_guess_is_refused(secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_secret(secret) == b"0123456789abcdef"
    secret.chmod(0o444)
    with pytest.raises(UsageError, match=r"all users can read the secret file .* chmod o= .* defaultMode: 0440"):
        read_secret(secret)
    secret.chmod(0o600)
    with monkeypatch.context() as patch:
        patch.setattr("meshrt.engine.launch.rendezvous.is_trusted", lambda _uid: False)
        with pytest.raises(UsageError, match=r"belongs to uid \d+, not to you"):
            read_secret(secret)
    secret.write_text("short")
    with pytest.raises(UsageError, match="has 5 bytes; expected 16 or more"):
        read_secret(secret)


def test_what_an_earlier_job_has_left_is_not_taken(bench: Bench, tmp_path: Path) -> None:
    invitation = bench.invitations.invite_all()
    file = SharedFile(tmp_path / "launch" / "job")
    rendezvous = Rendezvous(file)
    ports = invited_by(invitation.text()).ports
    for left in (known_invitation([("127.0.0.1", 1)], b"of another"), known_invitation(ports, b"of another")):
        file.publish(left)
        said: list[str] = []
        with pytest.raises(TimeoutError, match=r"host 0 was not found for 0 s: the script cannot be reached .*job"):
            rendezvous.wait(0.0, said.append)
    rendezvous.publish(invitation.text())
    assert rendezvous.wait(20, said.append) == invitation.text()
    assert invitation.accept(0.1) is None, "it has only looked"


def test_with_a_secret_file_the_invitation_has_none(bench: Bench, tmp_path: Path) -> None:
    secret = SECRET
    invitation = bench.invitations.invite_all(secret)
    file = SharedFile(tmp_path / "launch" / "job")
    Rendezvous(file, secret).publish(invitation.text())
    written = invited_by(file.fetch() or b"")
    assert (written.secret, written.certificate) == (b"", (b"", b"")) and tuple(written.ports) == bench.run.ports
    assert Rendezvous(file, secret).wait(20, print) == invitation.text()
    with pytest.raises(TimeoutError):
        Rendezvous(file, Secret(b"another secret, as long")).wait(0.0, print)


def test_it_is_said_what_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 6.0, 9.0, 13.0, 20.0])
    monkeypatch.setattr("meshrt.engine.launch.rendezvous.time.monotonic", lambda: next(times))
    monkeypatch.setattr("meshrt.engine.launch.rendezvous.time.sleep", lambda _seconds: None)
    said: list[str] = []
    with pytest.raises(TimeoutError, match=r"was not found for 20 s: no invitation yet: the file .*/job, which all"):
        Rendezvous(SharedFile(tmp_path / "job")).wait(20, said.append)
    assert [line.partition(" s: ")[0] for line in said] == ["waiting for host 0 for 6", "waiting for host 0 for 13"]
