"""Which host a rank is on, and where its socket is."""

from __future__ import annotations

import pickle

from meshrt.wire.addresses import HostAddress, MeshAddress, RankAddress, socket_path

HERE = HostAddress(7, 4711, b"/run/m")
THERE = HostAddress(9, 12, b"/run/m", (("10.0.0.2", 5000), ("fd00::2", 5000)))


def test_ranks_are_divided_among_the_hosts_in_order() -> None:
    address = MeshAddress.of([HERE, THERE], 5)
    assert [address.rank("abc", rank).host for rank in range(5)] == [HERE, HERE, HERE, THERE, THERE]
    assert address.rank("abc", 3) == RankAddress(THERE, "abc", 3)


def test_hosts_of_one_directory_are_one_address() -> None:
    other = HERE._replace(agent_pid=4712)
    assert MeshAddress.of([HERE, other], 4).hosts == (HERE,)
    assert MeshAddress.of([HERE, THERE._replace(ports=())], 4).hosts == (HERE,)
    assert len(MeshAddress.of([HERE, other._replace(directory=b"/other")], 4).hosts) == 2


def test_any_rank_of_a_process_that_is_a_mesh_of_its_own() -> None:
    assert MeshAddress((HERE,), 1).rank("abc", 5).path == "/run/m/abc.5"


def test_what_it_is_called() -> None:
    assert socket_path("/run/m", "abc", 7) == "/run/m/abc.7"
    assert str(RankAddress(HERE, "abc", 7)) == RankAddress(HERE, "abc", 7).path == "/run/m/abc.7"
    assert str(RankAddress(THERE, "abc", 7)) == "10.0.0.2:5000 or fd00::2:5000"
    assert RankAddress(THERE, "abc", 7).name == "rank/abc/7"
    odd = RankAddress(HERE._replace(directory=b"/run/\xff"), "abc", 7)
    assert odd.path == "/run/\udcff/abc.7"
    assert pickle.loads(pickle.dumps(odd)) == odd
