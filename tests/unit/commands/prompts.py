"""A prompt without a program: it answers what it was given, and notes what it was asked."""

from __future__ import annotations

from typing import Any, TypeVar

from meshrt.commandline.command import Offer, Outcome
from meshrt.commandline.table import COMMANDS
from meshrt.debug.prompt.answers import Answers
from meshrt.hooks.operations import Operation, body_of

__all__ = ["Prompt", "refused"]

A = TypeVar("A")


class Prompt:
    """Args: answers: By operation. says: What the person answers to questions; None: there is no person."""

    def __init__(self, answers: dict[str, Any], says: str | None = None) -> None:
        self.answers = answers
        self.says = says
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.questions: list[str] = []
        self.breaks: set[int] = set()
        self.client = self.terminal = self
        self.goes = 0
        self.pid = 1

    @property
    def interactive(self) -> bool:
        return self.says is not None

    def read(self, question: str) -> str:
        self.questions.append(question)
        return self.says or ""

    def ask(self, operation: Operation[A], timeout: float = 10.0) -> A:
        body = body_of(operation)
        body.pop("typed", None)
        self.asked.append((operation.name(), body))
        return operation.read_answer(self.answers[operation.name()])

    def collect(self, first: Any) -> Answers:
        answers = Answers()
        answers.add(first)
        return answers

    def __call__(self, line: str) -> Outcome:
        """Run a line."""
        prompt: Any = self
        return COMMANDS.parse(line, Offer.PROMPT).run(prompt)


def refused(line: str, offer: Offer = Offer.SHELL) -> str:
    """Return why a line is refused; "" if it is not."""
    try:
        COMMANDS.parse(line, offer)
    except Exception as error:
        return str(error)
    return ""
