"""What counts as a parser of typed lines, and that what is declared to be one is there."""

from __future__ import annotations

import pytest

from tests.house.parsers import parsers
from tests.support.sources import Source


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("parser = argparse.ArgumentParser(prog='x')", ["ArgumentParser"]),
        ("class Parser(argparse.ArgumentParser): ...", ["ArgumentParser"]),
        ("from argparse import ArgumentParser\ndef f(given: argparse.Namespace): ...", []),
        ("def f(line: str):\n    return line.split(maxsplit=1)[0]", ["f"]),
        ("async def f(a, *, line: str | None):\n    return line.strip()[2:].partition(' ')", ["f"]),
        ("def f(line: str):\n    return LINE.fullmatch(line)", ["f"]),
        ("def f(line: str):\n    return re.match('x', line[1:])", ["f"]),
        ("class A:\n    def f(self):\n        return WORD.match(self._line, self._at)", ["f"]),
        ("def f(line: str):\n    return line.partition('\\n')", []),
        ("def f(line: bytes):\n    return line.split()", []),
        ("def f(line: int):\n    return text.split(), lines[line].split()", []),
        ("def f(text: str):\n    for line in text.splitlines():\n        line.split()", []),
        ("def f(line: str):\n    return shown(line).split()", []),
        ("def main(arguments: list[str]):\n    if arguments[0] == '--help': ...", ["main"]),
        ("def main():\n    argv = sys.argv[1:]\n    run(argv[0])", ["main"]),
        ("def f(arguments):\n    return arguments[0]", []),
        ("def main(arguments):\n    return parser().parse_args(arguments)", []),
    ],
)
def test_what_parses_a_typed_line(text: str, found: list[str]) -> None:
    assert parsers(Source("meshrt/a.py", text)) == found
