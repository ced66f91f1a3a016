"""An example of every message that a catalogue has, made of its types: nobody can forget one that is new."""

from __future__ import annotations

from typing import Any

from msgspec import inspect

from meshrt.wire.control import Catalogue, Message

__all__ = ["examples_of"]


def examples_of(catalogue: Catalogue[Any]) -> list[dict[str, Any]]:
    """Return the fields of a message of each type, as msgpack unpacks them; optional fields are there."""
    found = [{"t": tag, **_fields(message)} for tag, message in catalogue._types.items()]
    for fields in found:
        assert isinstance(catalogue.convert(fields), Message)
    return found


def _fields(message: type) -> dict[str, Any]:
    kind = inspect.type_info(message)
    assert isinstance(kind, inspect.StructType | inspect.DataclassType)
    return {field.encode_name: _value(field.type) for field in kind.fields}


def _value(kind: inspect.Type) -> Any:
    match kind:
        case inspect.UnionType(types):
            return _value(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.StructType(array_like=True):
            return [_value(field.type) for field in kind.fields]
        case inspect.StructType(cls=cls) | inspect.DataclassType(cls=cls):
            return _fields(cls)
        case inspect.NamedTupleType(fields=fields):
            return [_value(field.type) for field in fields]
        case inspect.TupleType(item_types):
            return [_value(each) for each in item_types]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.CollectionType(item):
            return [_value(item)]
        case inspect.DictType(key, value):
            return {_value(key): _value(value)}
        case inspect.LiteralType(values):
            return values[0]
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return max(1, kind.ge or 0)
        case inspect.FloatType():
            return 1.5
        case inspect.StrType():
            return "a" if kind.pattern is None else "0a"
        case inspect.BytesType():
            return b"s" * 32
        case inspect.AnyType() | inspect.RawType():
            return 1
    raise NotImplementedError(f"no example of {kind}")
