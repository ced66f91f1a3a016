"""Bytes of a rank's pipe to lines and files."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.escapes import coloured, latest_state
from meshrt.host import logspace
from meshrt.host.output import LINE_MAX, MARK, RECORD_MARK, RankLog, Stream


class Pipe:
    """A rank's end and the agent's end."""

    def __init__(self, path: Path) -> None:
        self.warnings: list[str] = []
        self.log = RankLog(path, self.warnings.append)
        read_end, self.write_end = os.pipe()
        self.now = 100.0
        self.stream = Stream(read_end, self.log, err=False, clock=lambda: self.now)

    def write(self, data: bytes) -> list[tuple[str, str]]:
        """Write, and return the lines that came out at the other end."""
        os.write(self.write_end, data)
        lines = self.stream.read()
        assert lines is not None
        return lines

    def close(self) -> None:
        os.close(self.write_end)
        os.close(self.stream.fd)
        self.log.close()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "rank.log")
    yield made
    made.close()


def test_lines_come_when_their_newline_comes(pipe: Pipe) -> None:
    assert pipe.write(b"one\ntwo\nthr") == [("", "one"), ("", "two")]
    assert pipe.stream.read() == []
    assert pipe.write(b"ee\n") == [("", "three")]


def test_a_line_that_is_written_over_is_told_in_its_latest_state(pipe: Pipe, tmp_path: Path) -> None:
    assert pipe.write(b"\r 10%\r 20%\n") == [("", " 20%")]
    assert pipe.write(b"dos\r\n\r\n") == [("", "dos"), ("", "")]
    assert pipe.write(b"\r 30%") == []
    pipe.now += 4.9
    assert pipe.write(b"\r 40%") == []
    pipe.now += 0.1
    assert pipe.write(b"\r 50%") == [("", " 50%")]
    pipe.now += 4.9
    assert pipe.write(b"\r 60%") == [] and pipe.write(b"\r 100%\n") == [("", " 100%")]
    assert list(pipe.log.tail)[-2:] == [" 50%", " 100%"]
    pipe.now += 60.0
    assert pipe.write(b"no end of a line, and nothing over it") == []
    assert (tmp_path / "rank.log").read_bytes().endswith(b"\r 40%\r 50%\n\r 60%\r 100%\n")


def test_a_progress_bar_goes_back_to_its_line_without_a_trace(pipe: Pipe) -> None:
    assert pipe.write(b"\x1b[2K\r 10%\x1b[K\r\x1b[K 20% |##\x1b[0K\n") == [("", " 20% |##")]
    assert pipe.write(b"\r outer\n\r inner 3/9\x1b[A\n") == [("", " outer"), ("", " inner 3/9")]
    assert pipe.write(b"no carriage return\x1b[A\n") == [("", "no carriage return\x1b[A")]
    assert pipe.write(b"\r done\r\x1b[K\n") == [("", " done")]


def test_the_line_of_a_log_record_is_for_the_file_alone(pipe: Pipe, tmp_path: Path) -> None:
    assert pipe.write(b"one\n" + RECORD_MARK + b"ERROR:x:y\ntwo\n") == [("", "one"), ("", "two")]
    assert (tmp_path / "rank.log").read_bytes() == b"one\nERROR:x:y\ntwo\n"
    assert list(pipe.log.tail) == ["one", "ERROR:x:y", "two"]


def test_what_is_no_name_between_marks_is_part_of_the_line(pipe: Pipe, tmp_path: Path) -> None:
    forged = MARK + b"trainer gpus=1] loss 0 [x" + MARK + b"hello\n"
    assert pipe.write(forged) == [("", forged[:-1].decode())]
    assert (tmp_path / "rank.log").read_bytes() == forged


pieces_of_output = st.binary(max_size=40) | st.sampled_from(
    [b"\x1b[31m", b"\x1b", b"[31", b"m", b"\x1b[2J", b"\x1b]0;t\x07", b"\r", b"\n", MARK, b"name", b"\xe2\x80", b"\xae"]
)


@given(st.lists(pieces_of_output, max_size=20), st.integers(1, 50))
def test_however_it_is_cut_the_terminal_shows_the_same(pieces: list[bytes], size: int) -> None:
    data = b"".join(pieces) + b"x" * (LINE_MAX - 20) * (size % 3) + b"".join(pieces) + b"\n"
    shown = []
    for chunks in (
        [data],
        pieces_by(data, pieces),
        [data[at : at + size * 997] for at in range(0, len(data), size * 997)],
    ):
        pipe = Pipe(Path(os.environ["MESHRT_RUNTIME_DIR"]).parent / "cut.log")
        try:
            lines = [line for chunk in chunks if chunk for line in pipe.write(chunk)]
            shown.append(coloured("".join(f"[{actor}] {text}\n" for actor, text in lines)))
        finally:
            pipe.close()
    assert shown[0] == shown[1] == shown[2]


def pieces_by(data: bytes, pieces: list[bytes]) -> list[bytes]:
    """Cut data at the ends of its first pieces."""
    ends = [0, *itertools.accumulate(map(len, pieces)), len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(ends)]


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_however_it_is_cut_the_file_has_every_byte(pieces: list[bytes]) -> None:
    data = b"".join(pieces).replace(MARK, b"")
    path = Path(os.environ["MESHRT_RUNTIME_DIR"]).parent / "rank.log"
    path.unlink(missing_ok=True)
    pipe = Pipe(path)
    try:
        lines: list[tuple[str, str]] = []
        for piece in pieces:
            if piece.replace(MARK, b""):
                lines += pipe.write(piece.replace(MARK, b""))
        whole = data[: data.rfind(b"\n") + 1]
        assert [text for _, text in lines] == [
            latest_state(line.decode(errors="replace")) for line in whole.split(b"\n")[:-1]
        ]
        assert (path.read_bytes() if path.exists() else b"") == whole
    finally:
        pipe.close()


def test_the_end_brings_what_had_no_newline(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path / "rank.log")
    assert pipe.write(b"first\nlast words") == [("", "first")]
    os.close(pipe.write_end)
    assert pipe.stream.read() is None
    assert pipe.stream.end() == [("", "last words")]
    assert (tmp_path / "rank.log").read_text() == "first\nlast words\n"
    pipe.log.close()


def test_marks_name_the_actor_and_stay_out_of_the_file(pipe: Pipe, tmp_path: Path) -> None:
    assert pipe.write(MARK + b"second" + MARK + b"hello\n" + MARK + b"no end\n") == [
        ("second", "hello"),
        ("", "\x1eno end"),
    ]
    assert (tmp_path / "rank.log").read_bytes() == b"hello\n" + MARK + b"no end\n"


def test_odd_bytes_are_shown_and_kept(pipe: Pipe, tmp_path: Path) -> None:
    assert pipe.write(b"\xff\0\r\n") == [("", "\ufffd\0")]
    assert (tmp_path / "rank.log").read_bytes() == b"\xff\0\r\n"


def test_a_line_without_end_is_cut_into_pieces(pipe: Pipe) -> None:
    lines: list[tuple[str, str]] = []
    for _ in range(8):
        lines += pipe.write(b"x" * 10_000)
    assert len(lines) == 80_000 // LINE_MAX and all(len(text) == LINE_MAX for _, text in lines)


def test_the_last_lines_are_remembered(pipe: Pipe) -> None:
    pipe.write(b"".join(b"line %d\n" % index for index in range(100)))
    assert list(pipe.log.tail) == [f"line {index}" for index in range(80, 100)]


def test_a_file_is_private_and_made_with_the_first_byte(pipe: Pipe, tmp_path: Path) -> None:
    path = tmp_path / "rank.log"
    assert not path.exists()
    pipe.write(b"x\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_full_file_becomes_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logspace, "FILE_MAX", 100)
    log = RankLog(tmp_path / "rank.log", lambda text: None)
    for index in range(30):
        log.write(b"%08d\n" % index)
    log.close()
    older, newer = (tmp_path / "rank.log.1").read_bytes(), (tmp_path / "rank.log").read_bytes()
    assert len(older) <= 100 and len(newer) <= 100
    assert (older + newer).endswith(b"".join(b"%08d\n" % index for index in range(15, 30)))
    assert {path.name for path in tmp_path.iterdir()} == {"rank.log", "rank.log.1"}


def test_a_file_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    warnings: list[str] = []
    log = RankLog(tmp_path / "missing" / "rank.log", warnings.append)
    log.write(b"a\n")
    log.write(b"b\n")
    log.close()
    assert len(warnings) == 1 and "is no longer saved" in warnings[0] and "No such file" in warnings[0]


def test_a_log_that_somebody_removes_is_begun_again(tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "run"
    folder.mkdir()
    log = RankLog(folder / "rank.log", said.append)
    try:
        log.write(b"one\n")
        (folder / "rank.log").unlink()
        log.write(b"two\n")
        assert (folder / "rank.log").read_bytes() == b"two\n"
        (folder / "rank.log").unlink()
        folder.rmdir()
        log.write(b"three\n")
        folder.mkdir()
        log.write(b"four\n")
        assert (folder / "rank.log").read_bytes() == b"four\n" and len(said) == 1
    finally:
        log.close()
