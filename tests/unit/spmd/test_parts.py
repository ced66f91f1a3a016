"""What the processes of a job are told comes as it was."""

from __future__ import annotations

from meshrt.spmd.parts import JobSpec


def test_words_of_any_text() -> None:
    words = ["train.py", "\N{SNOWMAN}", "a\nb"]
    spec = JobSpec("meet", {"hosts": 1, "gpus": 2}, words, "main", "MPI", 0, 1, 17)
    assert JobSpec.from_json(spec.to_json()) == spec
    JobSpec.from_json(spec._replace(words=["\udcff"]).to_json().encode().decode())
