"""What a look at a site finds, with a site that has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.website.looking import NARROW, looking, why_not

_PAGE = """<!doctype html><body><img src="{image}">
<div style="overflow-x: auto"><p style="width: 900px">it scrolls</p></div>
<p style="width: {width}px">text</p></body>"""


@pytest.mark.slow
def test_what_is_too_wide_and_what_is_missing(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    (tmp_path / "here.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "good.html").write_text(_PAGE.format(width=300, image="here.svg"))
    (tmp_path / "wide.html").write_text(_PAGE.format(width=600, image="http://127.0.0.2:9/there.svg"))
    with looking(tmp_path) as look:
        look.open("good.html", width=NARROW)
        assert look.too_wide() == [] == look.said
        look.open("wide.html", width=NARROW)
        (wide,) = look.too_wide()
        assert wide.startswith("p of 6") and wide.endswith(": text")
        assert "http://127.0.0.2:9/there.svg is on another host" in look.said
        (tmp_path / "here.svg").unlink()
        look.open("good.html", width=NARROW)
        assert any("here.svg cannot be loaded: status 404" in said for said in look.said)
        look.shoot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
