"""The file about an endpoint that failed."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from meshrt.debug import dumpfile
from meshrt.debug.dumpfile import read_dump
from meshrt.debug.rank.dump import Dumper
from meshrt.debug.rank.sources import SourceFetcher
from meshrt.errors import UsageError
from meshrt.hooks.facts import EndpointCall
from meshrt.inspect.masking import MASK
from tests.support.limits import full_disk
from tests.unit.debug.fakes import FakeRankServices

CALL = EndpointCall("m1", "train/er", 2, "step", [["gpus"], 0, [4], [1]])


class Evil:
    """Fails whatever it is asked, and not with an Exception."""

    def __repr__(self) -> str:
        raise SystemExit(3)


class EvilError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def raised(function: Any, *arguments: Any) -> BaseException:
    try:
        function(*arguments)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fails(depth: int) -> None:
    evil = Evil()  # noqa: F841
    nested: Any = []
    nested.append(nested)
    text = "x" * 100_000  # noqa: F841
    if depth:
        fails(depth - 1)
    raise ValueError("deep")


@pytest.fixture
def services(tmp_path: Path) -> FakeRankServices:
    services = FakeRankServices(2)
    services.run_directory = str(tmp_path)
    return services


@pytest.fixture
def dumper(services: FakeRankServices) -> Dumper:
    return Dumper(services, SourceFetcher(services))


def test_what_is_in_it(dumper: Dumper, services: FakeRankServices, capsys: pytest.CaptureFixture[str]) -> None:
    path = dumper.dump(CALL, raised(fails, 1))
    assert path is not None
    assert path.name == "mesh-m1.2-train_er-1.json"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    document = read_dump(path)
    assert (document.host, document.pid, document.coords) == ("node1", 102, {"gpus": 2})
    assert document.thread == threading.current_thread().name
    innermost = document.frames[-1]
    assert innermost.function == "fails"
    assert innermost.source[0] == "def fails(depth: int) -> None:"
    assert innermost.source[-1] == '    raise ValueError("deep")'
    assert innermost.source[innermost.line - innermost.first_line] == '    raise ValueError("deep")'
    assert innermost.locals["evil"] == "*** Evil.__repr__ raised SystemExit: 3"
    assert innermost.locals["depth"] == "0"
    assert len(innermost.locals["text"]) < 1000
    assert str(path.parent) in capsys.readouterr().err


def test_what_looks_like_a_secret_is_masked(dumper: Dumper) -> None:
    class Client:
        def __init__(self) -> None:
            self.api_key = "hunter1"
            self.host = "db1"

        def __repr__(self) -> str:
            return "Client(host='db1', api_key='hunter2')"

    def connect(self: Client, password: str) -> None:
        settings = {"user": "me", "token": password}  # noqa: F841
        raise ConnectionError("refused")

    path = dumper.dump(CALL, raised(connect, Client(), "hunter3"))
    assert path is not None
    found = read_dump(path).frames[-1].locals
    assert found["password"] == MASK and found["settings"] == f"{{'token': {MASK}, 'user': 'me'}}"
    assert found["self"] == f"Client(host='db1', api_key={MASK})"
    assert "hunter" not in json.dumps(found)


def test_a_secret_in_the_message_or_in_the_source_is_masked(dumper: Dumper) -> None:
    def connect(pwd: str, conn_str: str, value: str) -> None:
        other = "sk-hunter5hunter5hunter5"  # noqa: F841
        raise ConnectionError(f"cannot reach postgres://me:{pwd}@db, password={pwd}")

    path = dumper.dump(CALL, raised(connect, "hunter1", "host=hunter2", "xoxb-hunter3-hunter3"))
    assert path is not None
    document = read_dump(path)
    assert "hunter" not in repr([document.exception, document.frames[-1]])
    assert document.exception.message == f"cannot reach postgres://me:{MASK}@db, password={MASK}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_deep_stack_is_bounded(dumper: Dumper) -> None:
    path = dumper.dump(CALL, raised(fails, 300))
    assert path is not None
    assert path.stat().st_size < 5_000_000
    assert len(read_dump(path).frames) == 100


def test_an_exception_that_cannot_be_shown_gets_its_file(dumper: Dumper) -> None:
    def fail() -> None:
        raise EvilError

    path = dumper.dump(CALL, raised(fail))
    assert path is not None
    exception = read_dump(path).exception
    assert exception.type.endswith("EvilError")
    assert "raised KeyboardInterrupt" in exception.message


def test_a_rank_that_always_fails_does_not_fill_the_disk(dumper: Dumper, tmp_path: Path) -> None:
    for _ in range(30):
        dumper.dump(CALL, raised(fails, 0))
    assert len(list((tmp_path / "post-mortem").iterdir())) == 20


def test_a_full_disk_is_said_once(dumper: Dumper, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        error = raised(fails, 0)
        with full_disk():
            assert dumper.dump(CALL, error) is None
    said = capsys.readouterr().err
    assert said.startswith(f"meshrt: no post-mortem file: OSError: [Errno 27] File too large: '{tmp_path}/")
    assert said.count("\n") == 1
    assert list((tmp_path / "post-mortem").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("hello", "not valid JSON"),
        ("[1, 2]", "is not a post-mortem file"),
        ('{"schema": "meshrt failure"}', r"\(meshrt postmortem shows reports of failures\)"),
        ('{"schema": "other"}', "is not a post-mortem file"),
        (json.dumps({"schema": dumpfile.SCHEMA.name, "version": 9}), "has version 9; this meshrt reads version 1"),
        (
            json.dumps({"schema": dumpfile.SCHEMA.name, "version": 1, "actor": "a"}),
            "damaged: Object missing required field `rank`",
        ),
        (json.dumps({"schema": dumpfile.SCHEMA.name, "version": 1, "actor": "a"})[:-5], "is cut off or damaged"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=said):
        read_dump(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_dump(tmp_path / "nothing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read: it is not text"):
        read_dump(tmp_path / "binary")


def test_every_cut_of_a_file_is_noticed(dumper: Dumper, tmp_path: Path) -> None:
    path = dumper.dump(CALL, raised(fails, 0))
    assert path is not None
    text = path.read_text()
    for length in range(0, len(text) - 1, 97):
        path.write_text(text[:length])
        with pytest.raises(UsageError, match=str(path)):
            read_dump(path)
