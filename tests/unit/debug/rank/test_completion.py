"""Names for the last word, without running the user's code."""

from __future__ import annotations

from typing import Any

from meshrt.debug.rank.completion import complete


class Slotted:
    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner = Thing()


class Thing:
    kind = "thing"

    def __init__(self) -> None:
        self.weight = 5
        self._hidden = 6
        self.more = {"a": 1}

    @property
    def explodes(self) -> Any:
        raise AssertionError("user code has run")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("user code has run")

    def __dir__(self) -> list[str]:
        raise AssertionError("user code has run")

    @staticmethod
    def helper() -> None:
        pass


NAMES = {"thing": Thing(), "slotted": Slotted(), "total": 3}


def test_names() -> None:
    assert complete("p tot", NAMES) == ["total"]
    assert complete("p total + thi", {}, NAMES) == ["thing"]
    assert "isinstance" in complete("isins", NAMES)
    assert "while" in complete("whi", NAMES)
    assert complete("p nothing_like_it", NAMES) == []
    assert complete("p len(tot", NAMES) == ["len(total"]
    assert complete("p 1+2*tot", NAMES) == ["1+2*total"]
    assert complete("p ", NAMES)[:1] == ["ArithmeticError"]


def test_attributes() -> None:
    assert complete("p thing.we", NAMES) == ["thing.weight"]
    assert complete("thing.", NAMES) == ["thing.explodes", "thing.helper", "thing.kind", "thing.more", "thing.weight"]
    assert complete("thing._hid", NAMES) == ["thing._hidden"]
    assert complete("thing.more.ke", NAMES) == ["thing.more.keys"]
    assert complete("slotted.inner.wei", NAMES) == ["slotted.inner.weight"]
    assert complete("p f(1, -thing.we", NAMES) == ["-thing.weight"]


def test_what_would_run_code_offers_nothing() -> None:
    assert complete("thing.explodes.a", NAMES) == []
    assert complete("thing.unknown.a", NAMES) == []
    assert complete("nobody.a", NAMES) == []
    assert complete("f(3).a", NAMES) == []


class Proxy:
    """Says what class it is of, and whether it is a descriptor, by running code."""

    @property  # type: ignore[misc]  # that is what lazy objects do
    def __class__(self) -> type:
        raise RuntimeError("asked for its class")

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"asked for {name}")

    weight = 3


def test_a_proxy_is_not_asked() -> None:
    names = {"proxy": Proxy(), "holder": type("Holder", (), {"inner": Proxy()})()}
    assert complete("proxy.we", names) == ["proxy.weight"]
    assert complete("holder.inner.we", names) == ["holder.inner.weight"]
