"""Lines of several ranks in one console."""

from __future__ import annotations

from meshrt.debug.dap.router.members import Printed


def test_a_line_is_shown_once_it_has_an_end() -> None:
    printed = Printed(lambda: "rank 3: ")
    assert printed.add("stdout", "lo") == ""
    assert printed.add("stderr", "a\n\nb") == "rank 3: a\n\n"
    assert printed.add("stdout", "ss\n") == "rank 3: loss\n"
    # What does not split lines for a person splits none.
    assert printed.add("stdout", "50 %\r100 %\u2028\n") == "rank 3: 50 %\r100 %\u2028\n"
    assert printed.rest() == [("stderr", "rank 3: b\n")]
    assert printed.rest() == []


def test_no_line_is_kept_back_for_ever() -> None:
    printed = Printed(lambda: "rank 3: ")
    shown = "".join(printed.add("stdout", "." * 100) for _ in range(100))
    assert shown.count(".") > 8000 and shown.startswith("rank 3: ...")
