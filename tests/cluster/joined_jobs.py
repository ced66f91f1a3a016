"""Jobs of ``meshrt run`` that a launcher starts on machines: what the tools and the report say of them."""

from __future__ import annotations

import json

from tests.cluster.launched import Launched
from tests.cluster.test_joined import SCRIPT
from tests.support.waiting import wait_until

__all__ = ["COMMAND", "check_failure", "check_look"]

#: What the launcher starts as each rank: the script trains until /tmp/shared/stop exists.
COMMAND = ("meshrt", "run", str(SCRIPT))
_SECONDS = 60


def check_look(cluster: Launched, *launcher: str, ranks: int) -> None:
    """The tools see all ranks on the first machine; the job ends when its script does, and leaves nothing."""
    stop = cluster.shared("stop")
    stop.unlink(missing_ok=True)
    job = cluster.start(*launcher, *COMMAND, STOP="/tmp/shared/stop")

    def meshrt(*words: str) -> str:
        return cluster.run("meshrt", *words).stdout

    wait_until(lambda: meshrt("p", "main", "rank").count("\n") == ranks, _SECONDS, "all have begun")
    assert meshrt("p", "main", "rank * 10") == "".join(f"[{rank}] {rank * 10}\n" for rank in range(ranks))
    where = meshrt("where")
    assert f"{ranks} ranks of run\n" in where and "cluster/joined_script.py:" in where, where
    rows = json.loads(meshrt("ps", "-v", "--json"))["programs"][0]["rows"]
    assert [row["rank"] for row in rows] == list(range(ranks))
    stop.touch()
    out, err = job.communicate(timeout=_SECONDS)
    assert job.returncode == 0 and "meshrt:" not in err, err
    assert sorted(out.splitlines()) == [f"trained {rank}" for rank in range(ranks)]
    cluster.wait_until_empty()


def check_failure(cluster: Launched, *launcher: str, cause: str, status: int = 1) -> str:
    """The last rank raises an exception, and the others would train on. Returns standard error.

    Args:
        cause: The beginning of what the report names.
        status: Of the launcher.
    """
    rank = int(cause.split()[1])
    cluster.shared("stop").unlink(missing_ok=True)
    done = cluster.run(*launcher, *COMMAND, "now", str(rank), STOP="/tmp/shared/stop")
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert f"FAILED 1 of {rank + 1} ranks of run" in done.stderr
    assert f"ROOT CAUSE  main {cause}" in done.stderr
    assert "ValueError: bad batch" in done.stderr.partition("ROOT CAUSE")[2]
    cluster.wait_until_empty()
    return str(done.stderr)
