"""The pictures in docs/: ``python -m tests.pictures`` writes them, from real sessions.

* `tests.pictures.editor`: errors in an editor, which are those that README shows as text.
* `tests.pictures.sessions`: what is typed at a terminal, and what is seen there.
* `tests.pictures.terminal`: the terminal; `tests.pictures.drawing`: its screens as SVG.
"""
