"""What a script tells its launcher, and when it takes that back."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import meshrt
from meshrt.errors import ActorError, RankPlace, RemoteException
from meshrt.failure import lastwords, telling
from meshrt.failure.torchelastic import read
from meshrt.failure.workers import Word
from meshrt.transport.directories import ERROR_FILE
from meshrt.transport.kernel import kernel_state


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of local worker 1 of three; the job has three more before them."""
    for name, value in {"RANK": "4", "LOCAL_WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    for local in range(3):
        (tmp_path / str(local)).mkdir()
    monkeypatch.setenv(ERROR_FILE, str(tmp_path / "1" / "error.json"))
    monkeypatch.setattr(telling, "_waited", True)  # for nobody: there are no other workers
    return tmp_path / "1" / "error.json"


def worker(file: Path) -> Any:
    return json.loads(file.read_text())["meshrt"]["worker"]


def somebody(file: Path, local: int, **facts: Any) -> None:
    """Another worker says something."""
    word = Word(rank=3 + local, **facts)
    document = {"message": {"message": word.headline}, "meshrt": {"worker": word.to_plain()}}
    (file.parent.parent / str(local) / file.name).write_text(json.dumps(document))


def test_a_main_function(file: Path) -> None:
    @meshrt.record
    def main(number: int) -> int:
        """Doubles."""
        if number < 0:
            raise ValueError(f"bad {number}")
        return 2 * number

    assert (main(3), main.__name__, main.__doc__) == (6, "main", "Doubles.") and not file.exists()
    with pytest.raises(ValueError, match="bad -1"):
        main(-1)
    left = read(file)
    assert left is not None and left.message == "ValueError: bad -1" and left.timestamp > 1.7e9
    assert 'raise ValueError(f"bad {number}")' in left.traceback
    assert json.loads(file.read_text())["meshrt"]["records"][0]["exception"]["type"] == "ValueError"
    assert os.environ[ERROR_FILE] == str(file)


def test_a_main_coroutine(file: Path) -> None:
    @meshrt.record
    async def main() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(main())
    left = read(file)
    assert left is not None and left.message == "KeyError: 'x'"


@pytest.mark.parametrize(("status", "told"), [("no configuration", True), (3, True), (0, False), (None, False)])
def test_a_main_function_exits(status: str | int | None, told: bool, file: Path) -> None:
    with pytest.raises(SystemExit):
        meshrt.record(sys.exit)(status)
    left = read(file)
    assert (left is not None) == told
    assert left is None or left.message == f"SystemExit: {status}"


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_launcher_nothing_is_written(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ERROR_FILE, raising=False)
    if value is not None:
        monkeypatch.setenv(ERROR_FILE, value)
    telling.tell_error(ValueError("bad"))
    assert not list(tmp_path.iterdir()) and os.environ.get(ERROR_FILE) == value


def test_the_file_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(ERROR_FILE, "/nowhere/at/all/error.json")

    @meshrt.record
    def main() -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        main()
    assert "meshrt: the error could not be reported to the launcher: No such file" in capfd.readouterr().err


CHILD = "import json, os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('%s')"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('{"message": "OSError: no shard", "timestamp": 1}', "  wrote    OSError: no shard\n"),
        ('{"message": {"mess', '  wrote    {"message": {"mess  (the file is cut off, or not an error file)\n'),
    ],
)
def test_a_child_does_not_write_over_its_parent(written: str, shown: str, file: Path) -> None:
    @meshrt.record
    def main() -> None:
        try:
            raise ValueError("bad")
        except ValueError as error:
            telling.tell_error(error)
        subprocess.run([sys.executable, "-c", CHILD % written], check=True)
        assert read(file).message == "ValueError: bad"  # type: ignore[union-attr]
        raise LookupError("worse")

    with pytest.raises(LookupError):
        main()
    left = read(file)
    assert left is not None and left.message == "LookupError: worse" and left.traceback.endswith(shown)


def test_a_victim_says_a_later_second_and_whose_it_is(file: Path) -> None:
    somebody(file, 2, evidence="own", low=1, high=1, second=4_000_000_000, headline="KeyError: 1")
    telling.tell_error(ConnectionResetError("gone"))
    left = read(file)
    assert left is not None and left.timestamp == 4_000_000_001.0
    assert left.traceback.startswith("worker 5 had failed before: KeyError: 1\n\n")
    assert (worker(file)["after"], worker(file)["evidence"]) == (5, "inferred")


def test_a_victim_may_note_it_before_its_cause_does(file: Path) -> None:
    """The connection was closed on the way to where the cause is noted."""
    now = time.monotonic_ns()
    somebody(file, 2, pid=1, evidence="inferred", low=now, high=now, second=4_000_000_000, headline="EOFError")
    telling.tell_error(ValueError("bad"))
    assert worker(file)["second"] < 4_000_000_000 and "after" not in worker(file)


def test_a_victim_expects_its_cause_until_the_end(file: Path) -> None:
    """Until then somebody may stop it, who has seen the cause."""
    before = time.time_ns() // 10**9
    telling.tell_error(EOFError(), final=False)
    assert worker(file)["second"] > before
    telling.tell_error(EOFError(), final=True)
    assert worker(file)["second"] <= time.time_ns() // 10**9


def test_a_victim_waits_for_the_word_of_its_cause(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "_waited", False)
    monkeypatch.setattr(telling, "_PATIENCE", 30.0)
    said = threading.Event()

    def say() -> None:
        while not file.exists():
            said.wait(0.001)
        somebody(file, 0, evidence="own", low=1, high=1, second=4_000_000_000, headline="KeyError: 1")

    thread = threading.Thread(target=say)
    thread.start()
    telling.tell_error(EOFError())
    thread.join()
    assert worker(file)["after"] == 3


def test_a_victim_lets_its_cause_end_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher takes whose end it sees first for the cause, if that one says nothing."""
    monkeypatch.setattr(telling, "_END", 30.0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as cause:
        somebody(
            file,
            0,
            pid=cause.pid,
            evidence="own",
            low=1,
            high=time.monotonic_ns(),
            second=4_000_000_000,
            headline="KeyError: 1",
        )

        def end() -> None:
            while not file.exists():
                time.sleep(0.001)
            cause.communicate(b"go on\n")

        thread = threading.Thread(target=end)
        thread.start()
        telling.tell_error(EOFError())
        assert kernel_state(cause.pid) in ("", "Z"), "it has ended, whether the thread knows that yet or not"
        thread.join()
        assert cause.returncode == 0


def test_an_error_of_a_rank_happened_some_time_after_its_call(file: Path) -> None:
    """It comes to the script later than it was: a victim may have seen the connection closed before."""
    loop: Any = Loop()
    error = ActorError(RankPlace("m", "trainer", 2), "step", RemoteException("ValueError", "bad batch", ""))
    error.sent = 4711
    lastwords.LastWords(loop, lambda _mesh: True).begin(error)
    told = Word.from_plain(worker(file))
    assert (told.evidence, told.low) == ("own", 4711) and told.high > 4711


def test_an_error_of_somebody_elses_rank_names_it(file: Path) -> None:
    place = RankPlace("m", "trainer", 2, (("n", 2),), "node7", 4711)
    remote = ActorError(place, "step", RemoteException("ValueError", "bad batch", ""))
    error = RuntimeError("no batches")
    error.__cause__ = remote
    telling.tell_error(error)
    assert worker(file)["evidence"] == "carried"
    left = read(file)
    assert left is not None and left.message == (
        "RuntimeError: no batches, caused by: "
        "trainer.step() raised on rank 2 (n=2) on node7, pid 4711: ValueError: bad batch"
    )


class Loop:
    """Runs what is to run later when it is asked to."""

    def __init__(self) -> None:
        self.later: list[Any] = []

    def call_soon(self, function: Any) -> None:
        function()

    def call_later(self, _seconds: float, function: Any) -> None:
        self.later.append(function)

    def run(self) -> None:
        functions, self.later = self.later, []
        for function in functions:
            function()


def test_what_the_script_handles_is_taken_back(file: Path) -> None:
    loop: Any = Loop()
    words = lastwords.LastWords(loop, lambda _mesh: True)
    try:
        try:
            raise ValueError("bad")
        except ValueError as error:
            words.begin(error)
            loop.run()
            assert file.exists()
            raise RuntimeError("worse") from error
    except RuntimeError:
        loop.run()
        assert file.exists()  # it is still on its way, as the cause of another
    loop.run()
    assert not file.exists() and not loop.later


def test_what_ends_the_script_is_not_taken_back(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop: Any = Loop()
    words = lastwords.LastWords(loop, lambda _mesh: True)
    error = ValueError("bad")
    words.begin(error)
    monkeypatch.setattr(sys, "last_value", error, raising=False)  # as Python does before it calls the excepthook
    loop.run()
    assert file.exists() and loop.later
    words.error(error)
    loop.run()
    assert file.exists() and not loop.later
