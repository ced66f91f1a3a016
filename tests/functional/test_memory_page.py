"""docs/memory.md shows what examples/memory.py prints."""

from __future__ import annotations

import re

import pytest

from tests.support.programs import ROOT, run_python

PAGE = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")

SIZE = r"\+?[\d.]+(( B| KiB| MiB)? - \+?[\d.]+)? (B|KiB|MiB)"
#: What is another one in every run: sizes of processes. Those of variables are the same.
VARIABLE = (
    (r"trainer +[\w.-]+( \(\+\d\))?( +\d+)?", "trainer HOST PID"),
    (
        r"(?m)^(?!self\.)(.*)$",
        lambda line: re.sub(r"\+?[\d.]+(( B| KiB| MiB)? - \+?[\d.]+)? (B|KiB|MiB)", "SIZE", line[0]),
    ),
    (r"in \d+ s:", "in T s:"),
    (r" +", " "),
)


def masked(text: str) -> str:
    for pattern, stand_in in VARIABLE:
        text = re.sub(pattern, stand_in, text)
    return text.strip()


@pytest.mark.nightly
def test_the_page_shows_what_is_printed() -> None:
    shown = [match[1] for match in re.finditer(r"^```\n(\$ meshrt memory.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
    done = run_python(str(ROOT / "examples" / "memory.py"))
    assert done.returncode == 0 and not done.stderr
    assert [masked(block) for block in re.split(r"(?m)^(?=\$ )", done.stdout) if block.strip()] == list(
        map(masked, shown)
    )
