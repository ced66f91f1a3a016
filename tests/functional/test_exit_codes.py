"""How every command ends: one set of exit codes, and a pipe that nobody reads is no error."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from meshrt.commandline.command import Offer
from meshrt.commandline.table import COMMANDS
from meshrt.show.status import ExitCode
from tests.support.programs import environment, run_python

RUN = "abcd1234"
#: What asks the program; of ``postmortem`` and ``run`` there is none to ask.
ASKING = (
    ["meshrt", "debug", RUN, "-c", "status"],
    ["meshrt", "debug", RUN, "--json", "-c", "status"],
    ["meshrt.debug", RUN, "-c", "status"],
    ["meshrt", "ps"],
    ["meshrt", "ps", "--json"],
    ["meshrt", "logs", RUN],
    ["meshrt", "timeline", "out.json", RUN],
    ["meshrt", "memory", RUN],
    ["meshrt", "memory", RUN, "--watch"],
    ["meshrt", "top", RUN, "--once"],
)
OF_A_PROGRAM = ("debug", "ps", "memory", "dap", "top", "postmortem")
#: All that a shell has.
EVERY = [command.name for command in COMMANDS.offered(Offer.SHELL)]


def table() -> list[tuple[list[str], str, ExitCode]]:
    """Return what is run, the way in which it ends, and its exit code."""
    cases = [(["meshrt", name, "--no-such-option"], "usage", ExitCode.USAGE) for name in EVERY]
    cases += [(["meshrt", name, "--help"], "unread", ExitCode.OK) for name in EVERY]
    cases += [(words, "refused", ExitCode.FAILED) for words in (*ASKING, ["meshrt", "dap", RUN, "--port", "0"])]
    cases += [(words, "interrupt", ExitCode.INTERRUPTED) for words in ASKING]
    return [
        *cases,
        (["meshrt.debug", "--no-such-option"], "usage", ExitCode.USAGE),
        (["meshrt.debug", "--open", "none.json"], "usage", ExitCode.USAGE),
        (["meshrt.debug", "--help"], "unread", ExitCode.OK),
        (["meshrt.debug", "--json", "1"], "unread", ExitCode.OK),
        (["meshrt", "no-such-command"], "usage", ExitCode.USAGE),
        (["meshrt", "run"], "usage", ExitCode.USAGE),
        (["meshrt", "--help"], "unread", ExitCode.OK),
        *((["meshrt", name, "1"], "usage", ExitCode.USAGE) for name in OF_A_PROGRAM),
        (["meshrt", "logs", "1", "trainer"], "usage", ExitCode.USAGE),
        (["meshrt", "timeline", "out.json", "1"], "usage", ExitCode.USAGE),
        (["meshrt", "postmortem"], "usage", ExitCode.FAILED),
        (["meshrt", "postmortem", "--json"], "usage", ExitCode.FAILED),
        (["meshrt", "postmortem", "--json"], "unread", ExitCode.OK),
    ]


@pytest.mark.slow
def test_every_command_ends_alike(tmp_path: Path) -> None:
    cases = table()
    with tempfile.TemporaryDirectory(prefix="mt") as short:  # paths of sockets have to be
        done = run_python(
            "-m",
            "tests.support.endings",
            input=json.dumps([case[:2] for case in cases]),
            cwd=tmp_path,
            env=environment(MESHRT_RUNTIME_DIR=f"{short}/r", MESHRT_RUNS=f"{short}/runs"),
            seconds=120,
        )
    assert done.returncode == 0
    for (words, way, expected), (code, out, err) in zip(cases, json.loads(done.stdout), strict=True):
        told = (words, way, out, err)
        assert code == expected, told
        assert "Traceback" not in err and "Exception" not in err, told
        if way == "unread":
            assert not err, told
        elif expected in (ExitCode.FAILED, ExitCode.USAGE) and "--json" not in words and words[1:] != ["ps"]:
            name = "meshrt" if "no-such-command" in words else "meshrt debug" if words[0] == "meshrt.debug" else None
            assert err.startswith(f"{name or ' '.join(words[:2])}: ") and not out, told
