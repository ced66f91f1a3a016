from __future__ import annotations

from typing import Any

import pytest

from meshrt.debug.dap.router.configuration import Configuration, for_engine, for_rank
from meshrt.errors import UsageError

GIVEN = {
    "name": "mesh", "type": "debugpy", "request": "attach", "connect": {"host": "127.0.0.1", "port": 1},
    "preLaunchTask": "x", "meshToken": "t", "meshRanks": "ranks(0:2)", "meshName": "trainer", "meshView": "threads",
    "meshStep": "all", "meshOnLost": "stay", "justMyCode": False, "pathMappings": [{"localRoot": "/a"}],
}  # fmt: skip


def test_every_key() -> None:
    read = Configuration.read(GIVEN)
    assert (read.token, read.ranks, read.mesh, read.view, read.step) == ("t", "ranks(0:2)", "trainer", "threads", "all")
    assert read.stay and read.rank is None and read.session == 0

    nothing = Configuration.read({})
    assert (nothing.token, nothing.ranks, nothing.mesh, nothing.view, nothing.step) == ("", "", "", "sessions", "one")
    assert not nothing.stay
    assert Configuration.read({"pathMappings": [], "rules": [{"module": "numpy", "include": True}]}).arguments
    # A number is what a person writes who means one rank.
    assert Configuration.read({"meshRanks": 3}).ranks == "3"


def test_what_an_ide_is_given_for_one_rank() -> None:
    child = for_rank(Configuration.read(GIVEN), ("m1", 3), 4, "gpus=3 (rank 3)", 7, "")
    read = Configuration.read(child)
    assert (read.rank, read.session, read.token, read.stay) == (("m1", 3), 7, "t", True)
    assert (child["name"], child["subProcessId"], child["request"]) == ("gpus=3 (rank 3)", 4, "attach")
    assert child["connect"] == GIVEN["connect"]
    assert not {"meshRanks", "meshName", "meshView", "meshStep"} & set(child)
    # A process that the IDE starts for it is told where its router is.
    assert "meshSocket" not in child
    child = for_rank(Configuration.read(GIVEN), ("m1", 3), 4, "gpus=3 (rank 3)", 7, "/run/dap-5")
    assert Configuration.read(child).socket == "/run/dap-5"
    # The engine is told what is debugpy's, of either.
    assert for_engine(child) == for_engine(GIVEN) == {key: GIVEN[key] for key in ("justMyCode", "pathMappings")}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            {"meshRank5": 1},
            "meshRank5 is not a key of meshrt; meshRank? There are meshToken, meshRun, meshRanks,",
        ),
        ({"meshTokn": "x"}, "meshTokn is not a key of meshrt; meshToken?"),
        ({"meshRanks": "ranks(0:"}, "meshRanks is the ranks to attach to"),
        ({"meshRanks": True}, "; not True"),
        ({"meshRanks": ["0"]}, "meshRanks is the ranks to attach to, as in 'ranks(0:4)'"),
        ({"meshName": {}}, "meshName is a mesh, or an actor of one; all meshes if it is missing; not {}"),
        ({"meshToken": None}, "meshToken is the token that meshrt dap prints; not None"),
        ({"meshView": "rows"}, "meshView is 'sessions' (a session for each rank) or 'threads'"),
        ({"meshStep": "two"}, "meshStep is 'one' or 'all'"),
        ({"meshOnLost": False}, "meshOnLost is 'resume' or 'stay'"),
        ({"meshRank": 3}, "meshRank is set by meshrt dap; meshRanks chooses ranks"),
        ({"meshRank": ["m", True]}, "meshRank is set by meshrt dap; meshRanks chooses ranks"),
        ({"pathMappings": "/app"}, 'pathMappings is a list of {"localRoot": '),
        ({"pathMappings": [{"localRoot": 5}]}, "; not [{'localRoot': 5}]"),
        ({"pathMappings": None}, "; not None"),
        ({"rules": [{"path": "x"}]}, 'rules is a list of {"path": '),
        ({"rules": [{"include": True, "module": 5}]}, "; not [{'include': True, 'module': 5}]"),
        ({"meshRank": ["m", 1, 2]}, "meshRank is set by meshrt dap; meshRanks chooses ranks"),
    ],
)
def test_complaints(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        Configuration.read(arguments)
    assert complaint in str(caught.value)
