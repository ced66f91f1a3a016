"""How a process ends that user code ends: as an interpreter would."""

from __future__ import annotations

import pytest

from meshrt.actor.exiting import exit_code


class Text:
    def __str__(self) -> str:
        raise OSError("no text")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (None, 0, ""),
        (SystemExit(), 0, ""),
        (SystemExit(3), 3, ""),
        (SystemExit(True), 1, ""),
        (SystemExit("in words"), 1, "in words"),
        (SystemExit(Text()), 1, "its text could not be made"),
        (ValueError("other"), 1, "ValueError: other"),
    ],
)
def test_exit_codes_are_those_of_the_interpreter(
    error: BaseException | None, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(error) == code
    err = capsys.readouterr().err
    assert text in err and bool(text) == bool(err)
