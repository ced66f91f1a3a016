"""What ranks print: on the program's terminal line by line with a prefix, and in a file per rank."""

from __future__ import annotations

import os
import re
import sys
import threading
from pathlib import Path

import pytest

from meshrt import Actor, UsageError, current_rank, endpoint, proc_mesh
from meshrt.mesh.program import start_root
from tests.support.programs import run_python
from tests.support.screen import Screen


class Printer(Actor):
    """Prints in every way there is."""

    @endpoint
    def say(self, *lines: str) -> None:
        for line in lines:
            print(line)

    @endpoint
    def say_rank(self, count: int) -> None:
        for index in range(count):
            print(f"rank {current_rank().rank} line {index} " + "x" * 50)

    @endpoint
    def complain(self, text: str) -> None:
        print(text, file=sys.stderr)

    @endpoint
    def raw(self, data: bytes) -> None:
        os.write(1, data)

    @endpoint
    def in_threads(self, threads: int, lines: int) -> None:
        def work(number: int) -> None:
            for index in range(lines):
                print(f"thread {number}", end=" ")
                print(f"line {index} " + "y" * 40)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    @endpoint
    def without_newline(self, text: str) -> None:
        print(text, end="")


def log_files(mesh_name: str) -> list[Path]:
    return sorted(Path(os.environ["MESHRT_RUNS"]).glob(f"*/{mesh_name}-*.log"))


def test_lines_carry_actor_and_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    proc_mesh(hosts=2, gpus=2, logs="fold=off").spawn("printer", Printer).say.call("ready").get(20)
    assert sorted(out.wait_for_lines(4)) == [
        f"[printer hosts={host},gpus={gpu}] ready" for host in range(2) for gpu in range(2)
    ]


def test_standard_error_goes_to_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    proc_mesh(n=1).spawn("printer", Printer).complain.call("oh no").get(20)
    err.wait_for("[printer n=0] oh no\n")
    assert "oh no" not in out.text


def test_a_mesh_without_dimensions_has_no_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    proc_mesh(one=1).slice(one=0).spawn("printer", Printer).say.call_one("hello").get(20)
    assert out.wait_for_lines(1) == ["[printer one=0] hello"]


def test_lines_of_many_ranks_stay_whole_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    proc_mesh(n=4).spawn("printer", Printer).say_rank.call(200).get(20)
    lines = out.wait_for_lines(800)
    numbers: dict[int, list[int]] = {}
    for line in lines:
        found = re.fullmatch(r"\[printer n=(\d)\] rank (\d) line (\d+) x{50}", line)
        assert found and found[1] == found[2], line
        numbers.setdefault(int(found[1]), []).append(int(found[3]))
    assert numbers == {rank: list(range(200)) for rank in range(4)}


def test_lines_of_many_threads_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    proc_mesh(n=1).spawn("printer", Printer).in_threads.call(4, 100).get(20)
    lines = out.wait_for_lines(400)
    assert all(re.fullmatch(r"\[printer n=0\] thread \d line \d+ y{40}", line) for line in lines)
    assert len(set(lines)) == 400


def test_a_second_actor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    mesh = proc_mesh(n=2, logs="fold=off")
    first, second = mesh.spawn("first", Printer).get(20), mesh.spawn("second", Printer).get(20)
    first.say.call("from the first", "and more").get(20)
    second.say.call("from the second").get(20)
    assert sorted(out.wait_for_lines(6)) == sorted(
        line
        for rank in range(2)
        for line in (
            f"[first n={rank}] from the first",
            f"[first n={rank}] and more",
            f"[second n={rank}] from the second",
        )
    )


def test_odd_bytes_and_a_last_line_without_newline(monkeypatch: pytest.MonkeyPatch) -> None:
    out = Screen.instead_of("stdout", monkeypatch)
    mesh = proc_mesh(n=1)
    printer = mesh.spawn("printer", Printer)
    printer.raw.call(b"\xff\xfe broken \r\n\n\x1b[31mred\x1b[0m\nz" + b"y" * 40_000 + b"\n").get(20)
    printer.say.call("between").get(20)
    printer.without_newline.call("the end").get(20)
    mesh.stop()
    out.wait_for("the end\n")
    lines = [line.removeprefix("[printer n=0] ") for line in out.wait_for_lines(6)]
    assert lines[:3] == ["\ufffd\ufffd broken ", "", "\x1b[31mred\x1b[0m"]
    assert "".join(lines[3:-2]) == "z" + "y" * 40_000  # a very long line may come in pieces
    assert lines[-2] == "between"


def test_no_line_of_another_can_be_faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours pass; what moves the cursor is shown, the file has it as it was, and ``meshrt logs`` shows it alike."""
    out, err = Screen.instead_of("stdout", monkeypatch), Screen.instead_of("stderr", monkeypatch)
    said = [
        b"\x1b[32mgreen",
        b"\x1b[1A\x1b[2K[printer n=1] loss 0",
        b"\x1b]0;title\x07x\x0b[printer n=1] y",
        "\x1e[printer n=1] z [\x1e\u202eend".encode(),
        b"[1]",
    ]
    with proc_mesh(n=1, name="faker") as mesh:
        printer = mesh.spawn("printer", Printer)
        printer.raw.call(b"\n".join([*said, b""])).get(20)
        out.wait_for("[1]\n")
        printer.complain.call("\x9b2Jgone").get(20)
        err.wait_for("gone\n")
        printed, complained = out.text, err.text
        shown = run_python("-m", "meshrt", "logs", str(os.getpid()), "printer").stdout
        raw = run_python("-m", "meshrt", "logs", str(os.getpid()), "printer", "--raw").stdout
    lines = [
        "\x1b[32mgreen\x1b[0m",
        "\\e[1A\\e[2K[printer n=1] loss 0",
        "\\e]0;title\\x07x\\x0b[printer n=1] y",
        "\\x1e[printer n=1] z [\\x1e\\u202eend",
    ]
    assert printed == "".join(f"[printer n=0] {line}\n" for line in [*lines, "[1]"])
    assert complained == "[printer n=0] \\x9b2Jgone\n"
    (file,) = log_files("faker")
    assert file.read_bytes().startswith(b"\n".join(said))
    assert shown.split("\n") == ["[0]", *lines, " [1]", "\\x9b2Jgone", ""]
    assert "\x1b]0;title\x07" in raw and "\x9b2J" in raw


def test_everything_is_kept_in_a_file_per_rank() -> None:
    with proc_mesh(n=2, name="kept") as mesh:
        printer = mesh.spawn("printer", Printer)
        printer.say_rank.call(50).get(20)
        printer.complain.call("an error line").get(20)
        mesh.spawn("second", Printer).say.call("from the second").get(20)
    files = log_files("kept")
    assert [file.suffixes[0] for file in files] == [".0", ".1"]
    for rank, file in enumerate(files):
        text = file.read_text()
        assert [f"rank {rank} line {index} " + "x" * 50 for index in range(50)] == [
            line for line in text.splitlines() if line.startswith("rank")
        ]
        assert "an error line\n" in text and "from the second\n" in text and "\x1e" not in text
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_program_that_prints_nothing_leaves_no_run_directory() -> None:
    before = set(Path(os.environ["MESHRT_RUNS"]).glob("*"))
    with proc_mesh(n=1, name="quiet") as mesh:
        mesh.spawn("printer", Printer).say.call().get(20)
    from meshrt import shutdown_context  # the end of the program, which is the subject here

    shutdown_context()
    assert set(Path(os.environ["MESHRT_RUNS"]).glob("*")) <= before


_LOGS = """
import logging
from meshrt import proc_mesh
{setup}
proc_mesh(n=1).initialized.get()
logging.getLogger("meshrt").info("of no account")
try:
    raise KeyError("lost")
except KeyError:
    logging.getLogger("meshrt").warning("something is slow", exc_info={traceback})
"""


def test_what_the_runtime_logs_in_the_script_says_whose_words_these_are() -> None:
    done = run_python("-c", _LOGS.format(setup="", traceback=True))
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert lines[0] == "meshrt: something is slow" and lines[-1] == "KeyError: 'lost'"
    assert "of no account" not in done.stderr
    # A program that has set up logging gets it there, and there alone.
    done = run_python("-c", _LOGS.format(setup="logging.basicConfig(format='%(name)s! %(message)s')", traceback=False))
    assert done.stderr.splitlines() == ["meshrt! something is slow"]


@pytest.mark.slow
def test_the_files_of_all_ranks_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_LOGS_LIMIT", "1MiB")
    screen = Screen.instead_of("stderr", monkeypatch)
    printers = proc_mesh(n=2).spawn("printer", Printer)
    for _ in range(30):
        printers.raw.call((b"x" * 99 + b"\n") * 1000).get(60)
    screen.wait_for("(MESHRT_LOGS_LIMIT) in 10000 files\n")
    files = list(Path(start_root().run.run_directory).glob("*.log*"))
    assert 1 << 18 < sum(path.stat().st_size for path in files) <= (1 << 20) + (1 << 17)


def test_a_limit_that_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHRT_LOGS_LIMIT", "plenty")
    with pytest.raises(UsageError, match="MESHRT_LOGS_LIMIT='plenty': expected a size such as 4GiB"):
        proc_mesh(n=1)
