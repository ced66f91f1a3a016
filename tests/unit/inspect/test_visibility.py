"""Which frames are shown."""

from __future__ import annotations

import bdb
import cmd
import importlib
import os
import queue
import re
import sys
import threading
from pathlib import Path

import meshrt
from meshrt.inspect.visibility import (
    cut,
    debugger_index,
    is_debugging_file,
    is_hidden_file,
    is_plumbing_file,
    own_line,
)

PACKAGE = os.path.dirname(meshrt.__file__)
MAILBOX = os.path.join(PACKAGE, "actor", "mailbox.py")
USER = "/home/me/train.py"


def test_classes_of_files() -> None:
    assert is_hidden_file(MAILBOX) and not is_hidden_file(threading.__file__)
    assert is_plumbing_file(MAILBOX) and is_plumbing_file(threading.__file__) and is_plumbing_file(bdb.__file__)
    assert is_plumbing_file("<frozen runpy>") and is_plumbing_file("/x/site-packages/uvloop/__init__.py")
    assert not is_plumbing_file(queue.__file__) and not is_plumbing_file(USER) and not is_plumbing_file("<string>")
    assert is_debugging_file(bdb.__file__) and is_debugging_file(os.path.join(PACKAGE, "debug", "rank", "x.py"))
    assert not is_debugging_file(MAILBOX) and not is_debugging_file(PACKAGE + "debugger/x.py")


def test_the_runtime_and_what_leads_into_user_code_are_cut() -> None:
    files = [threading.__file__, MAILBOX, USER, MAILBOX, queue.__file__, threading.__file__]
    assert cut(list(range(6)), files) == [2, 4, 5]
    assert cut([0, 1], files[:2]) == []


def test_a_rank_is_in_the_debugger_when_that_has_been_loaded() -> None:
    loading, loaded = (
        os.path.join(PACKAGE, *names) for names in (("hooks", "plugins.py"), ("debug", "rank", "__init__.py"))
    )
    importing = [importlib.__file__, "<frozen importlib._bootstrap>"]
    assert debugger_index([MAILBOX, USER, MAILBOX, loaded, bdb.__file__]) == 3
    assert debugger_index([MAILBOX, "<frozen importlib._bootstrap>", USER, MAILBOX, loaded]) == 4
    assert debugger_index([MAILBOX, USER, loading, *importing, loaded, importing[1]]) is None
    assert debugger_index([MAILBOX, USER, MAILBOX, loaded, USER]) is None


def test_what_runs_at_a_prompt_is_shown_without_the_prompt() -> None:
    prompt = os.path.join(PACKAGE, "debug", "rank", "prompt.py")
    files = [MAILBOX, USER, prompt, bdb.__file__, cmd.__file__, bdb.__file__, "<string>", USER]
    assert cut(list(range(8)), files) == [1, 6, 7]
    # A program of the user's may be made of these.
    assert cut(list(range(3)), [MAILBOX, USER, cmd.__file__]) == [1, 2]


def test_the_innermost_line_of_the_user() -> None:
    """Lines of libraries are passed over, and a lambda has no name."""
    thread = threading.Thread(target=threading.Event().wait, args=(0.5,))
    thread.start()
    assert own_line(sys._current_frames().get(thread.ident or 0)) == "" and own_line(None) == ""
    thread.join()
    name = Path(__file__).name
    assert re.fullmatch(rf".*{name}:\d+, in test_the_innermost_line_of_the_user\(\)", own_line(sys._getframe()))
    assert re.fullmatch(rf".*{name}:\d+", own_line((lambda: sys._getframe())()))
