"""How machines reach each other, and what is done where they do not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster

LINKS = Path(__file__).with_name("links.py")
ALL = ["script [1000, 1000]", "first echoed {2000000}", "second echoed {2000000}"]

needs_nft = pytest.mark.skipif(not shutil.which("nft"), reason="the program nft is not installed")


def asked(cluster: Cluster, agents: Mapping[str, Sequence[str]] | None = None) -> tuple[list[str], str]:
    """Run a program whose ranks all call each other; returns what it prints, and what it says on standard error."""
    program = cluster.start("ask", program=LINKS, agents=agents)
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0, out + err
    lines = out.splitlines()
    assert lines[0].startswith("hosts ['n1', 'n2']")
    return lines[1:], err


@pytest.mark.slow
@needs_nft
@pytest.mark.row("H4")
def test_a_machine_that_lets_nothing_in_is_reached_through_the_script(cluster: Cluster) -> None:
    cluster.machines[0].only_out()
    lines, err = asked(cluster)
    assert lines == ALL
    assert err.count("cannot connect to host n1 (") == 2 and err.count("10.7.0.1 port ") == 2, err
    assert "the script (10.7.0.254) cannot connect to host n1" in err
    assert "host n2 (10.7.0.2) cannot connect to host n1" in err
    assert "goes through the script" in err and "cannot connect to host n2" not in err


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_machines_that_listen_where_nobody_reaches_them(cluster: Cluster, both: bool) -> None:
    first, second = cluster.machines
    lines, err = asked(cluster, cluster.hidden(first, *([second] if both else [])))
    assert lines == ALL
    assert "the script (10.7.0.254) cannot connect to host n1 (127.0.0.1 port " in err
    assert "goes through connections that the host" in err
    assert "host n2 (10.7.0.2) cannot connect to host n1 (127.0.0.1 port " in err and "goes through the script" in err
    assert err.count("cannot connect to") == (4 if both else 2), err


@pytest.mark.nightly
def test_one_that_is_not_reached_and_reads_late_slows_its_caller_alone(cluster: Cluster) -> None:
    program = cluster.start("rush", program=LINKS, agents=cluster.hidden(cluster.machines[1]))
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0 and "rushed 40000000" in out and "True" in out, out + err


@needs_nft
@pytest.mark.nightly
def test_two_machines_that_let_nothing_in(cluster: Cluster) -> None:
    for machine in cluster.machines:
        machine.only_out()
    lines, err = asked(cluster)
    assert lines == ALL
    assert err.count("cannot connect to") == 4


@pytest.mark.nightly
@needs_nft
def test_one_that_reads_late_slows_its_caller_alone(cluster: Cluster) -> None:
    cluster.machines[1].only_out()
    program = cluster.start("rush", program=LINKS)
    out, err = program.communicate(timeout=150)
    assert program.returncode == 0 and "rushed 40000000" in out and "True" in out, out + err


@pytest.mark.nightly
@needs_nft
def test_an_interface_that_leads_nowhere(cluster: Cluster) -> None:
    first, second = cluster.machines
    first.add_interface("dead0", "10.9.0.1/24")
    # Silence, as from a firewall: not the error of a missing route.
    second.change("ip route add 10.9.0.0/24 dev eth0", undo=["ip route del 10.9.0.0/24 dev eth0"])
    second.filter("out ip daddr 10.9.0.0/24 drop")
    lines, err = asked(cluster)
    assert lines == ALL and "cannot connect to" not in err


@pytest.mark.nightly
def test_two_machines_with_the_same_private_address(cluster: Cluster) -> None:
    for machine in cluster.machines:
        machine.add_interface("same0", "10.9.0.5/24")
    agents = {name: [*command, "MESHRT_PORTS=40000"] for name, command in cluster.agents.items()}
    lines, err = asked(cluster, agents)
    assert lines == ALL and "cannot connect to" not in err


def test_ipv6_alone(cluster: Cluster) -> None:
    cluster.machines[0].switch.run("ip", "addr", "replace", "fd07::254/64", "dev", "bridge0", "nodad")
    for machine in cluster.machines:
        address = f"{machine.address}/24 dev eth0"
        machine.change(f"ip addr del {address}", undo=[f"ip addr add {address}"])
    lines, err = asked(cluster)
    assert lines == ALL and "cannot connect to" not in err


@pytest.mark.nightly
@pytest.mark.parametrize("bind", ["0.0.0.0", "::"])
def test_all_interfaces_by_their_address(cluster: Cluster, bind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script and the agents listen at an address that cannot be dialled, and offer those that can."""
    cluster.machines[0].switch.run("ip", "addr", "replace", "fd07::254/64", "dev", "bridge0", "nodad")
    monkeypatch.setitem(cluster.environment, "MESHRT_BIND", bind)
    agents = {name: [*command, f"MESHRT_BIND={bind}"] for name, command in cluster.agents.items()}
    lines, err = asked(cluster, agents)
    assert lines == ALL and "cannot connect to" not in err


@pytest.mark.slow
def test_an_address_with_a_label_of_its_own(cluster: Cluster) -> None:
    for number, machine in enumerate(cluster.machines, 1):
        address = f"10.7.1.{number}/24 dev eth0"
        machine.change(f"ip addr add {address} label eth0:1", undo=[f"ip addr del {address}"])
    lines, err = asked(cluster)
    assert lines == ALL and "cannot connect to" not in err


@pytest.mark.nightly
def test_host_names_that_are_loopback_addresses_or_none(cluster: Cluster) -> None:
    first, second = cluster.machines
    names = "127.0.0.1 localhost\n127.0.1.1 n1\n"
    done = first.run("sh", "-c", f"printf '{names}' > /tmp/hosts && mount --bind /tmp/hosts /etc/hosts")
    assert done.returncode == 0, done.stderr
    first.change(undo=["umount /etc/hosts"])
    second.change("hostname no.such.name", undo=["hostname n2"])
    program = cluster.start("ask", program=LINKS)
    out, err = program.communicate(timeout=100)
    assert program.returncode == 0 and out.splitlines()[1:] == ALL, out + err


@pytest.mark.nightly
@needs_nft
def test_packets_that_are_lost(cluster: Cluster) -> None:
    for machine in cluster.machines:
        machine.filter("in numgen random mod 100 < 5 drop", "out numgen random mod 100 < 5 drop")
    lines, err = asked(cluster)
    assert lines == ALL and "does not" not in err


@pytest.mark.nightly
@needs_nft
def test_a_script_that_nobody_reaches(cluster: Cluster) -> None:
    cluster.machines[1].filter("out drop")
    program = cluster.start("ask", program=LINKS)
    _, err = program.communicate(timeout=100)
    assert program.returncode == 1
    assert "n2" in err and "the script cannot be reached at any of its addresses: 10.7.0.254 port " in err, err
