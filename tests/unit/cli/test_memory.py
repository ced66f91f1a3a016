"""The options of ``meshrt memory``, on files: no program is asked."""

from __future__ import annotations

import pytest

from meshrt.cli.memory import main


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan", "1e300"])
def test_a_view_is_watched_by_seconds_that_are_some(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([f"--watch={seconds}"])
    assert f"argument --watch: '{seconds}' is no number of seconds above 0" in capsys.readouterr().err
