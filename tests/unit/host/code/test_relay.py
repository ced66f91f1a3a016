"""Questions of ranks for code: the agent asks once for all, keeps the answers, and processes wait for them."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshrt.host.code.asking import Asker, NoAnswerError
from meshrt.host.code.relay import CodeRelay, Kept, code_path
from meshrt.transport.timers import Timers
from meshrt.wire.code import PIECE, AskCode, Code, digest_of
from meshrt.wire.handshake import Secret

SECRET = Secret(b"s" * 32)
TEXT = b"x = 1\n"


class Desk:
    """An agent's part without sockets; its clock is set by the test."""

    def __init__(self) -> None:
        self.asked: list[AskCode] = []
        self.said: list[str] = []
        self.answers: list[Code] = []
        self.now = 0.0
        self.kept = Kept(self.asked.append, self.said.append, "n1", lambda: self.now)

    def ask(self, module: str, known: str = "", number: int = 5) -> None:
        self.kept.asked(AskCode(number, module, known=known), self.answers.append)

    def answer(self, data: bytes | None = TEXT, text: bytes = TEXT) -> None:
        self.kept.answered(Code(self.asked[-1].id, "source", "/x.py", None, digest_of(text), len(text), data))


def test_one_question_for_all_who_ask_at_once() -> None:
    desk = Desk()
    desk.ask("m", number=5)
    desk.ask("m", number=6)
    desk.ask("other")
    assert [question.module for question in desk.asked] == ["m", "other"]
    desk.asked.pop()
    desk.answer()
    assert [(code.id, code.data) for code in desk.answers] == [(5, TEXT), (6, TEXT)]


def test_an_answer_is_used_for_a_second_and_then_compared() -> None:
    desk = Desk()
    desk.ask("m")
    desk.answer()
    desk.now = 0.9
    desk.ask("m")
    assert (len(desk.asked), len(desk.answers)) == (1, 2)
    desk.now = 1.1
    desk.ask("m")
    assert (desk.asked[-1].known, len(desk.answers)) == (digest_of(TEXT), 2)
    desk.answer(None)  # it is the same
    assert desk.answers[-1].data == TEXT
    desk.now = 3.0
    desk.ask("m")
    desk.answer(b"new", b"new")
    assert desk.answers[-1].data == b"new"


def test_a_new_mesh_compares_what_is_kept() -> None:
    desk = Desk()
    desk.ask("m")
    desk.answer()
    desk.kept.compare_again()
    desk.ask("m")
    assert len(desk.asked) == 2
    desk.answer(b"new", b"new")
    assert desk.answers[-1].data == b"new"


def test_a_file_that_is_the_same_here_is_not_sent_and_another_one_is_said_once() -> None:
    desk = Desk()
    desk.ask("m", known=digest_of(TEXT))
    desk.answer()
    assert desk.answers[-1].data is None and desk.said == []
    for _ in range(2):
        desk.ask("m", known=digest_of(b"old"))
    assert [code.data for code in desk.answers[1:]] == [TEXT, TEXT]
    assert desk.said == ["/x.py of host n1 differs from that of the script, which the ranks use"]


def test_an_answer_that_is_not_waited_for_is_dropped() -> None:
    Desk().kept.answered(Code(9, "absent"))


class Agent(threading.Thread):
    """The loop of an agent, and a root that answers at once."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.path = code_path(str(directory), os.getpid())
        self.texts: dict[str, bytes] = {}
        self.selector = selectors.DefaultSelector()
        self.timers = Timers()
        self.kept = Kept(self._answer, print, "n1")
        self.relay = CodeRelay(self.selector, self.path, SECRET, self.kept, self.timers.add)
        self.ends = False

    def _answer(self, question: AskCode) -> None:
        text = self.texts.get(question.module)
        if text is not None:
            piece = text[question.offset : question.offset + PIECE]
            self.timers.add(
                0.0,
                lambda: self.kept.answered(
                    Code(question.id, "source", "/x.py", None, digest_of(text), len(text), piece)
                ),
            )

    def run(self) -> None:
        while not self.ends:
            for key, events in self.selector.select(min(0.02, self.timers.wait() or 0.02)):
                key.data(events)
            for function in self.timers.due():
                function()

    def end(self) -> None:
        self.ends = True
        self.join(20)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self.selector.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    made.start()
    yield made
    made.end()
    made.selector.close()


def test_threads_ask_at_once_and_get_long_texts_whole(agent: Agent) -> None:
    agent.texts = {"m": TEXT, "long": os.urandom(2 * PIECE + 5)}
    asker = Asker(agent.path, SECRET)
    found: list[Code] = []
    threads = [threading.Thread(target=lambda: found.append(asker.ask("m"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [code.data for code in found] == [TEXT] * 4
    assert asker.ask("long").data == agent.texts["long"]
    assert asker.ask("m", known=digest_of(TEXT)).data is None


def test_no_answer_in_time_is_said(
    agent: Agent, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meshrt.host.code.asking._TELL", 0.1)
    with pytest.raises(NoAnswerError, match=r"the script's machine has not answered for 0.3 s"):
        Asker(agent.path, SECRET, 0.3).ask("never")
    assert capsys.readouterr().err == ("meshrt: never was requested from the script's machine: no answer for 0.1 s\n")


def test_an_agent_that_has_ended_and_a_wrong_secret(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(NoAnswerError, match="the host agent cannot be asked"):
        Asker(str(tmp_path / "none"), SECRET).ask("m")
    with pytest.raises(NoAnswerError, match="the host agent cannot be asked"):
        Asker(agent.path, Secret(b"x" * 32)).ask("m")
