"""Log records of ranks are those of the script: its levels, its handlers, its format."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt import Actor, ProcessDied, current_rank, endpoint, proc_mesh
from meshrt.testing import local
from tests.support.programs import run_python
from tests.support.screen import Screen
from tests.support.waiting import wait_until

NAME = "tests.of.ranks"


class Worker(Actor):
    @endpoint
    def log(self, level: int, text: str, name: str = NAME) -> None:
        logging.getLogger(name).log(level, text)

    @endpoint
    def enabled(self, level: int) -> bool:
        return logging.getLogger(NAME).isEnabledFor(level)

    @endpoint
    def with_everything(self) -> int:
        try:
            raise KeyError("lost")
        except KeyError:
            logging.getLogger(NAME).exception("step %d", 7, extra={"loss": 0.5, "batch": [1, 2], "name_of_run": "r"})
        return os.getpid()

    @endpoint
    def print_and_log(self, text: str) -> None:
        print(text)
        print(text, file=sys.stderr)
        logging.getLogger(NAME).warning(text)

    @endpoint
    def configure(self) -> None:
        logging.basicConfig(level=logging.INFO, format="own %(message)s")

    @endpoint
    def flood(self, count: int, size: int) -> None:
        for _ in range(count):
            logging.getLogger(NAME).error("x" * size)

    @endpoint
    def log_and_die(self, text: str) -> None:
        logging.getLogger(NAME).error(text)
        os._exit(3)

    @endpoint
    def in_a_fork(self, text: str) -> int:
        child = os.fork()
        if not child:
            logging.getLogger(NAME).error(text)
            os._exit(0)
        return os.waitpid(child, 0)[1]

    @endpoint
    def bad_arguments(self) -> None:
        logging.getLogger(NAME).error("%d", "no number")


class Records(logging.Handler):
    """Keeps what it is given; waits with it while it is not ``released``."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[logging.LogRecord] = []
        self.released = threading.Event()
        self.released.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.released.wait(60)
        self.found.append(record)

    def wait_for(self, count: int) -> list[logging.LogRecord]:
        wait_until(lambda: len(self.found) >= count, 20, f"{count} records")
        return self.found

    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.found]


@pytest.fixture
def records() -> Iterator[Records]:
    """A handler at the logger of the tests, which passes nothing on."""
    logger, handler = logging.getLogger(NAME), Records()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield handler
    handler.released.set()
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def files_of(mesh_name: str) -> str:
    files = sorted(Path(os.environ["MESHRT_RUNS"]).glob(f"*/{mesh_name}-*.log"))
    return "".join(file.read_text() for file in files)


def test_records_come_with_all_that_they_say(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    with proc_mesh(hosts=2, gpus=2, name="logging") as mesh:
        pids = mesh.spawn("worker", Worker).with_everything.call().get(20)
        found = sorted(records.wait_for(4), key=lambda record: vars(record)["rank"])
    assert [vars(record)["rank"] for record in found] == [0, 1, 2, 3]
    record = found[3]
    assert (record.name, record.levelno, record.levelname, record.getMessage()) == (NAME, 40, "ERROR", "step 7")
    assert (record.filename, record.funcName) == ("test_logging.py", "with_everything")
    assert record.process == pids.item(hosts=1, gpus=1) and record.processName == "worker hosts=1,gpus=1"
    assert record.threadName == "MainThread" and 0 <= record.msecs < 1000
    added = vars(record)
    assert (added["mesh"], added["actor"], dict(added["point"])) == ("logging", "worker", {"hosts": 1, "gpus": 1})
    assert (added["loss"], added["batch"], added["name_of_run"]) == (0.5, "[1, 2]", "r")
    text = logging.Formatter("%(rank)s %(levelname)s %(message)s").format(record)
    assert text.startswith("3 ERROR step 7\nTraceback (most recent call last):\n") and text.endswith("KeyError: 'lost'")
    assert not out.text and not err.text
    assert files_of("logging").count(f"ERROR:{NAME}:step 7\nTraceback") == 4


def test_levels_of_the_script_hold_on_ranks(records: Records) -> None:
    worker = proc_mesh(n=1).spawn("worker", Worker)
    assert not worker.enabled.call_one(logging.DEBUG).get(20) and worker.enabled.call_one(logging.INFO).get(20)
    worker.log.call(logging.DEBUG, "hidden").get(20)
    worker.log.call(logging.INFO, "shown").get(20)
    records.wait_for(1)
    logging.getLogger(NAME).setLevel(logging.DEBUG)
    wait_until(lambda: worker.enabled.call_one(logging.DEBUG).get(20), 20, "the rank has the level")
    worker.log.call(logging.DEBUG, "shown, too", f"{NAME}.below").get(20)
    records.wait_for(2)
    logging.getLogger(NAME).setLevel(logging.ERROR)
    wait_until(lambda: not worker.enabled.call_one(logging.WARNING).get(20), 20, "the rank has the level")
    worker.log.call(logging.WARNING, "hidden").get(20)
    worker.log.call(logging.ERROR, "the last").get(20)
    assert records.wait_for(3) and records.texts() == ["shown", "shown, too", "the last"]


def test_what_is_printed_and_what_is_logged_are_told_apart(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    with proc_mesh(n=1, name="apart") as mesh:
        mesh.spawn("worker", Worker).print_and_log.call("text").get(20)
    out.wait_for("text\n")
    err.wait_for("text\n")
    records.wait_for(1)
    assert out.text == err.text == "[worker n=0] text\n" and records.texts() == ["text"]
    assert sorted(files_of("apart").splitlines()) == [f"WARNING:{NAME}:text", "text", "text"]


def test_a_rank_that_has_handlers_of_its_own_shows_each_line_once(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    with proc_mesh(n=1, name="own") as mesh:
        worker = mesh.spawn("worker", Worker)
        worker.configure.call().get(20)
        worker.log.call(logging.INFO, "once").get(20)
        err.wait_for("once\n")
    assert err.text == "[worker n=0] own once\n" and records.found == [] and files_of("own") == "own once\n"


def test_without_handlers_in_the_script_it_is_shown_as_what_a_rank_prints() -> None:
    done = run_python(
        "-c",
        "from meshrt import proc_mesh\nfrom tests.functional.test_logging import Worker\n"
        "worker = proc_mesh(n=2, logs='fold=60').spawn('worker', Worker)\n"
        "worker.log.call(20, 'of no account').get(20)\nworker.log.call(30, 'two\\nlines').get(20)\n"
        "other = proc_mesh(n=2, logs='fold=60 level=info').spawn('other', Worker)\n"
        "other.log.call(10, 'of no account').get(20)\nother.log.call(20, 'as this mesh wants it').get(20)\n",
    )
    assert done.returncode == 0 and done.stdout == ""
    assert done.stderr == "[worker 0-1] two\n[worker 0-1] lines\n[other 0-1] as this mesh wants it\n"


def test_a_flood_is_bounded_and_what_is_left_out_is_counted(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    count, size = 1500, 30_000
    records.released.clear()
    worker = proc_mesh(n=1, name="flood").spawn("worker", Worker)
    worker.flood.call(count, size).get(60)
    worker.log.call(logging.INFO, "the last").get(20)  # serves calls as before
    records.released.set()
    err.wait_for("of flood were dropped")

    def told() -> int:
        lines = [line.split() for line in err.text.splitlines() if "log records on rank 0 of flood" in line]
        return sum(int(words[1]) for words in lines)

    wait_until(lambda: told() + len(records.found) == count + 1, 20, "each is handled or counted")
    assert len(records.found) * size < 24 << 20
    assert files_of("flood").count("x" * 100) >= count


def test_the_record_of_a_rank_that_dies_arrives(records: Records) -> None:
    with proc_mesh(n=1, name="dying") as mesh:
        with pytest.raises(ProcessDied) as died:
            mesh.spawn("worker", Worker).log_and_die.call("the last words").get(20)
        records.wait_for(1)
    assert records.texts() == ["the last words"] and f"ERROR:{NAME}:the last words" in str(died.value)
    assert files_of("dying") == f"ERROR:{NAME}:the last words\n"


def test_a_fork_of_a_rank_logs_as_python_does(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    worker = proc_mesh(n=1).spawn("worker", Worker)
    assert worker.in_a_fork.call_one("of a child").get(20) == 0
    assert err.wait_for("of a child\n") == "[worker n=0] of a child\n" and records.found == []


def test_a_bad_call_is_shown_on_the_rank(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    err = Screen.instead_of("stderr", monkeypatch)
    proc_mesh(n=1).spawn("worker", Worker).bad_arguments.call().get(20)
    assert "--- Logging error ---" in err.wait_for("Arguments: ('no number',)\n") and records.found == []


def test_actors_in_the_process_of_a_test_log_there(records: Records) -> None:
    with local(Worker) as worker:
        worker.log.call(logging.INFO, "here").get(20)
    assert records.texts() == ["here"]


def test_the_actor_has_a_logger(caplog: pytest.LogCaptureFixture) -> None:
    """pytest's own handler is one of the script."""

    class Named(Actor):
        @endpoint
        def log(self) -> None:
            self.logger.warning("rank %d", current_rank().rank)

    proc_mesh(n=2).spawn("named", Named).log.call().get(20)
    wait_until(lambda: len(caplog.records) == 2, 20)
    assert sorted(caplog.messages) == ["rank 0", "rank 1"] and {record.name for record in caplog.records} == {"Named"}
