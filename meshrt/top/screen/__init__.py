"""The screen of ``meshrt top``. Needs textual, which only this package and `meshrt.top.serving` import."""

__all__: list[str] = []
