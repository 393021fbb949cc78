"""Build requests from plain data by the schema of their messages.

    request("JoinGroup", group_id="g", protocols=[["range", b"metadata"]])
    message(JoinGroupRequest, group_id="g", protocols=[["range", b"metadata"]])

A struct is given as a dict by field name, as a list of its first fields, or as the value of its first field alone.
Arrays are lists or tuples. Text for a field of bytes is encoded.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from highwater.reference.wire.registry import APIS, Api
from highwater.reference.wire.schema import ArrayOf, Field, FieldType, Sized, StructOf, fields_of

T = TypeVar("T")
API_BY_NAME: Final[Mapping[str, Api]] = {api.name: api for api in APIS.values()}
BYTES: Final = frozenset({"bytes", "records"})


def request(name: str, /, **values: Any) -> Any:
    """Return the request of an API with these fields. Raises ValueError for an unknown API or field."""
    if name not in API_BY_NAME:
        raise ValueError(f"no API is called {name}")
    return build(API_BY_NAME[name].request, values)


def message(struct: type[T], /, **values: Any) -> T:
    """Return a message of this type with these fields. Raises ValueError for an unknown field."""
    found: T = build(struct, values)
    return found


def build(struct: type[Any], value: Any) -> Any:
    """Return a struct built from plain data. Raises ValueError for an unknown field, or too many of them."""
    if isinstance(value, struct):
        return value
    known = {field.name: field for field in fields_of(struct)}
    given = _by_name(struct, value, known)
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise ValueError(f"{struct.__name__} has no field {', '.join(unknown)}; its fields are {', '.join(known)}")
    return struct(**{name: _value(known[name].type, each) for name, each in given.items()})


def _by_name(struct: type[Any], value: Any, known: Mapping[str, Field]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) > len(known):
        raise ValueError(f"{struct.__name__} has {len(known)} fields, not {len(values)}")
    return dict(zip(known, values, strict=False))


def _value(field_type: FieldType, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(field_type, ArrayOf):
        return tuple(_value(field_type.element, each) for each in value)
    if isinstance(field_type, StructOf):
        return build(field_type.struct, value)
    is_text = isinstance(field_type, Sized) and field_type.name in BYTES and isinstance(value, str)
    return value.encode() if is_text else value


# -- items of lists that are nested in a request -------------------------------------------------------


def placed(
    struct: type[Any],
    values: Mapping[str, Any],
    path: Sequence[str],
    items: list[dict[str, Any]],
    *,
    apart: bool = False,
) -> dict[str, Any]:
    """Return the fields of a struct with items in the list at a path, such as `topics`, `partitions`.

    An item has the fields of all structs along the path, in one dict: items that follow one another with the same topic
    share its struct, unless they are `apart`. An element that is no struct is the only field left of its item. A struct
    that `values` gives at the path is extended.
    """
    name, *inner = path
    element = element_of(struct, name)
    if not inner:
        return {**values, name: [_element(element, item) for item in items]}
    outer: list[dict[str, Any]] = values.get(name, [])
    if outer:
        (known,) = outer
        return {**values, name: [placed(element.struct, known, inner, items, apart=apart)]}
    own = {field.name for field in fields_of(element.struct)}
    groups = list[tuple[dict[str, Any], list[dict[str, Any]]]]()
    for item in items:
        shared = {key: value for key, value in item.items() if key in own}
        rest = {key: value for key, value in item.items() if key not in own}
        if apart or not groups or groups[-1][0] != shared:
            groups.append((shared, []))
        groups[-1][1].append(rest)
    return {**values, name: [placed(element.struct, shared, inner, rest) for shared, rest in groups]}


def element_of(struct: type[Any], name: str) -> Any:
    """Return the type of the elements of a field. Raises ValueError unless the struct has such a list."""
    found = next((field.type for field in fields_of(struct) if field.name == name), None)
    if not isinstance(found, ArrayOf):
        raise ValueError(f"{struct.__name__} has no list {name}")
    return found.element


def _element(element: FieldType, item: dict[str, Any]) -> Any:
    if isinstance(element, StructOf):
        return item
    (value,) = item.values()
    return value
