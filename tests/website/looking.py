"""A browser on a site that MkDocs has built: what it finds, in which colours, and what does not fit a narrow screen."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.dap.vscode.installed import chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Look", "looking", "why_not"]

#: Pixels of a telephone.
NARROW = 390
#: Names what reaches beyond the right edge, unless something around it scrolls or cuts it off.
_TOO_WIDE = """() => {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const cut = (node) => node && node !== document.documentElement
        && (getComputedStyle(node).overflowX !== 'visible' || cut(node.parentElement));
    return [...document.querySelectorAll('body *')]
        .filter((node) => node.getBoundingClientRect().right > width + 1 && !cut(node.parentElement))
        .map((node) => `${node.tagName.toLowerCase()} of ${Math.round(node.getBoundingClientRect().right)} px: `
            + node.textContent.trim().slice(0, 60));
}"""


def why_not() -> str:
    """Return why there is no browser here, and how to get one; "" if there is."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (pip install --group browser)"
    return "" if chromium() else "there is no chromium (apt install chromium)"


class Look:
    """A page of the site. Not for other threads than the one that has made it.

    Attributes:
        said: What pages have reported: errors of scripts, and requests that failed or went to another host.
    """

    def __init__(self, page: Page, address: str) -> None:
        self._page = page
        self._address = address
        self.said: list[str] = []
        page.on("pageerror", lambda error: self.said.append(f"{page.url}: {error}"))
        page.on("requestfailed", lambda request: self._check_failed(request.url, request.failure or ""))
        page.on("response", lambda response: self._check_status(response.url, response.status))
        page.on("request", lambda request: self._check(request.url))

    def _check_failed(self, url: str, why: str) -> None:
        if why != "net::ERR_ABORTED":  # what a page still loads when the next one is opened
            self.said.append(f"{url} cannot be loaded: {why}")

    def _check_status(self, url: str, status: int) -> None:
        if status >= 400:
            self.said.append(f"{url} cannot be loaded: status {status}")

    def _check(self, url: str) -> None:
        if not url.startswith((self._address, "data:", "blob:")):
            self.said.append(f"{url} is on another host")

    def open(self, name: str, *, width: int = 1280, height: int = 900) -> None:
        """Open a page in a window of this size."""
        self._page.set_viewport_size({"width": width, "height": height})
        self._page.goto(f"{self._address}{name}")
        self._page.evaluate("() => document.fonts.ready")

    def found(self, term: str) -> list[str]:
        """Return the headings of the pages that a search shows first; waits for at least one."""
        self._page.keyboard.press("/")
        self._page.locator("input.md-search__input").fill(term)
        results = self._page.locator(".md-search-result__item h1, .md-search-result__item h2")
        results.first.wait_for()
        return [text.strip() for text in results.all_text_contents()]

    def colours(self) -> tuple[str, float]:
        """Return the name of the scheme, and how bright the background is, from 0 to 255."""
        name = self._page.evaluate("() => document.body.dataset.mdColorScheme")
        colour = self._page.evaluate(
            "() => getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number)"
        )
        return str(name), sum(colour[:3]) / 3

    def switch_colours(self) -> None:
        """Press the switch in the header."""
        before, _ = self.colours()
        self._page.locator("form[data-md-component=palette] label:not([hidden])").click()
        self._page.wait_for_function("before => document.body.dataset.mdColorScheme !== before", arg=before)

    def too_wide(self) -> list[str]:
        """Return what makes the window scroll sideways."""
        return [str(each) for each in self._page.evaluate(_TOO_WIDE)]

    def shoot(self, path: Path) -> None:
        """Save a picture of the window."""
        self._page.screenshot(path=path)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def looking(site: Path) -> Iterator[Look]:
    """Serve a folder to a browser, on this machine alone."""
    from playwright.sync_api import sync_playwright  # optional: the group `browser`

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with sync_playwright() as playwright:
            # As in containers, where there is no user for a sandbox; the pages are this project's own.
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            try:
                yield Look(browser.new_page(color_scheme="light"), f"http://127.0.0.1:{server.server_port}/")
            finally:
                browser.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
