"""Documents are JSON for every reader, whatever is in them, and say what they are."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshrt.errors import UsageError
from meshrt.show.records import Recorder, Schema, refuse_to_overwrite, text_with_list, to_text

SCHEMA = Schema("meshrt test", 3)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=10,
)


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def read(text: str) -> Any:
    return json.loads(text, parse_constant=refuse)


@given(ANYTHING)
def test_anything_is_strict_json_in_one_line(value: object) -> None:
    text = to_text(value)
    assert text.isascii() and "\n" not in text
    json.dumps(read(text), ensure_ascii=False).encode()  # no half of a surrogate pair is in it


def test_numbers_that_json_does_not_have_are_null() -> None:
    values = [math.nan, math.inf, -math.inf, 0.5, {"a": (math.nan, 1)}]
    assert read(to_text(values)) == [None, None, None, 0.5, {"a": [None, 1]}]


def test_texts_that_no_encoding_takes_are_escaped() -> None:
    assert read(to_text({"lone \ud800": "\udfff é"})) == {"lone \\ud800": "\\udfff é"}


def test_what_json_has_no_form_for() -> None:
    with pytest.raises(TypeError):
        to_text({"a": object})
    assert to_text({"a": {1}}, default=repr) == '{"a": "{1}"}'


def test_a_long_list_is_written_an_item_at_a_time() -> None:
    outline, items = {"a": "é", "c": 2}, [{"b": float("nan")}, (1, True, None)]
    assert read(text_with_list(outline, "list", iter(items))) == read(to_text({**outline, "list": items}))
    assert text_with_list({"a": 1}, "list", []) == '{"a": 1, "list": []}'


def test_a_document_says_what_it_is() -> None:
    out = io.StringIO()
    write = Recorder(out, SCHEMA)
    write({"a": 1})
    write({"b": math.nan})
    first, second = out.getvalue().splitlines()
    assert first == '{"schema": "meshrt test", "version": 3, "a": 1}'
    assert SCHEMA.is_of(read(second)) and read(second)["b"] is None
    assert not any(map(SCHEMA.is_of, (None, [], {}, {"schema": "meshrt memory"})))


def test_a_file_of_the_user_is_not_overwritten(tmp_path: Path) -> None:
    schema = Schema("meshrt test", 1)
    path = tmp_path / "out.json"
    refuse_to_overwrite(path, schema)
    path.touch()
    refuse_to_overwrite(path, schema)
    path.write_text(to_text(schema.document({"x": 1})))
    refuse_to_overwrite(path, schema)
    refuse_to_overwrite(Path("/dev/null"), schema)
    for text in ("my notes", to_text(Schema("meshrt tests", 1).document({}))):
        path.write_text(text)
        with pytest.raises(UsageError, match="--force overwrites it"):
            refuse_to_overwrite(path, schema)
