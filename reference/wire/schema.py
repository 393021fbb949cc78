"""The annotations that define the schema of every message.

A message is a frozen dataclass. The annotation of a field is its wire type (`Int32`, `String | None`,
`tuple[FetchTopic, ...]`). Marks in the annotation define its versions (`since(3)`), its tag, and the versions in which
it may be null. The Python default is the protocol's default. Everything else is derived: the constructs, the fast
readers and writers, Hypothesis strategies and the printer.

The marks follow two rules of the protocol (KIP-482, KIP-893):

- a field that a version lacks is decoded as the default; encoding another value is an error unless it is `ignorable`;
- a tagged field is encoded only if it differs from its default, which may be non-null even for a nullable field.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import lru_cache, update_wrapper
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    ParamSpec,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from highwater.reference.wire.errors import UnsupportedVersionError

# --------------------------------------------------------------------------------------------------
# Frozen dataclasses with slots that are created as fast as mutable ones.
#
# `dataclass(frozen=True)` sets every field through `object.__setattr__`, which takes three times an assignment, and a
# broker creates a dozen such objects per request. Here `__init__` gives the object a mutable class with the same slots
# while it assigns the fields, and sets the frozen class at the end.


FrozenT = TypeVar("FrozenT")


@dataclass_transform(frozen_default=True)
def frozen(cls: type[FrozenT]) -> type[FrozenT]:
    """Like `dataclass(frozen=True, slots=True)`, but without default factories and `__post_init__`."""
    return with_fast_init(dataclass(frozen=True, slots=True)(cls))


def with_fast_init(cls: type[FrozenT]) -> type[FrozenT]:
    """Replace the `__init__` of a frozen dataclass with slots by one that assigns the fields directly."""
    own: Any = cls
    dataclass_fields = fields(own)
    names = [field.name for field in dataclass_fields]
    defaults = {field.name: field.default for field in dataclass_fields if field.default is not MISSING}
    keywords_only = any(field.kw_only for field in dataclass_fields)
    lines = [f"def __init__(self, {'*, ' if keywords_only and dataclass_fields else ''}{', '.join(names)}):"]
    lines += ["    turn(self, opened)", *(f"    self.{name} = {name}" for name in names), "    self.__class__ = cls"]
    namespace: dict[str, Any] = {}
    opened = type(cls.__name__, (), {"__slots__": tuple(names)})
    exec("\n".join(lines), {"turn": _set_class, "opened": opened, "cls": cls}, namespace)
    init: Any = update_wrapper(namespace["__init__"], own.__init__)
    del init.__wrapped__
    if keywords_only:
        init.__kwdefaults__ = defaults
    else:
        init.__defaults__ = tuple(defaults.values())
    own.__init__ = init
    return cls


_set_class: Callable[[object, type], None] = object.__dict__["__class__"].__set__
"""Sets the class of an object whose class does not allow assignments."""


LATEST: Final = 0x7FFF
"""The largest version: versions are int16."""

MAX_STRING: Final = 0x7FFF
"""The maximum size of a string in bytes, also if its length is a varint."""

ZERO_UUID: Final = bytes(16)
"""Kafka's "no id": 16 raw zero bytes."""

T = TypeVar("T")
P = ParamSpec("P")


def derived(function: Callable[P, T]) -> Callable[P, T]:
    """Cache a function like `functools.cache`, but keep its signature (mypy considers classes unhashable)."""
    cached: Any = lru_cache(maxsize=None)(function)
    return cached  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; `first > last` is empty."""

    first: int = 0
    last: int = LATEST

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Parse the notation of Kafka's message definitions: `3`, `0-12`, `9+` or `none`."""
        if text == "none":
            return NEVER
        if text.endswith("+"):
            return cls(int(text[:-1]))
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


ALWAYS: Final = Versions()
NEVER: Final = Versions(1, 0)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A type of fixed size; `code` is its format character in `struct`."""

    name: str
    code: str


@dataclass(frozen=True, slots=True)
class Sized:
    """Bytes with a length prefix: `string`, `bytes` or `records`."""

    name: str


@dataclass(frozen=True, slots=True)
class ArrayOf:
    element: "FieldType"


@dataclass(frozen=True, slots=True)
class StructOf:
    struct: type[Any]


FieldType = Fixed | Sized | ArrayOf | StructOf

Int8 = Annotated[int, Fixed("int8", "b")]
Int16 = Annotated[int, Fixed("int16", "h")]
Int32 = Annotated[int, Fixed("int32", "i")]
Int64 = Annotated[int, Fixed("int64", "q")]
UInt16 = Annotated[int, Fixed("uint16", "H")]
UInt32 = Annotated[int, Fixed("uint32", "I")]
Float64 = Annotated[float, Fixed("float64", "d")]
Bool = Annotated[bool, Fixed("bool", "?")]
Uuid = Annotated[bytes, Fixed("uuid", "16s")]
String = Annotated[str, Sized("string")]
Bytes = Annotated[bytes, Sized("bytes")]
Records = Annotated[bytes, Sized("records")]


@dataclass(frozen=True, slots=True)
class Tag:
    number: int
    versions: Versions


@dataclass(frozen=True, slots=True)
class Nullable:
    versions: Versions


@dataclass(frozen=True, slots=True)
class Ignorable:
    """The field is dropped when it is encoded in a version that lacks it, instead of an error."""


ignorable: Final = Ignorable()


def since(first: int) -> Versions:
    return Versions(first)


def until(last: int) -> Versions:
    return Versions(0, last)


def versions(first: int, last: int) -> Versions:
    return Versions(first, last)


def nullable(since: int) -> Nullable:
    """Allow null from this version on; without this mark `| None` allows it in every version."""
    return Nullable(Versions(since))


def tagged(number: int, since: int) -> Tag:
    """Place the field in the tag section; it exists from this version on."""
    return Tag(number, Versions(since))


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: FieldType
    default: Any
    versions: Versions = ALWAYS
    nullable: Versions = NEVER
    tag: Tag | None = None
    ignorable: bool = False


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """The arguments of the `message` decorator; `api_key` is -1 for structs that are not a request or response."""

    api_key: int
    versions: Versions
    flexible: Versions


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of a struct in one version. It is hashable, as the cache key of codecs."""

    struct: type[Any]
    version: int
    flexible: bool
    in_line: tuple[Field, ...]
    tagged: tuple[Field, ...]
    missing: tuple[Field, ...]

    def __hash__(self) -> int:
        return hash((self.struct, self.version, self.flexible))

    def of(self, struct: type[Any]) -> "Layout":
        """Return the layout of a nested struct in the same version."""
        return layout(struct, self.version, self.flexible)

    def is_nullable(self, field: Field) -> bool:
        return self.version in field.nullable


@dataclass_transform(frozen_default=True, kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct inside a message; it has the version and flexibility of the message."""
    return with_fast_init(dataclass(frozen=True, slots=True, kw_only=True)(cls))


@dataclass_transform(frozen_default=True, kw_only_default=True)
def message(*, versions: str, flexible_from: int | None = None, api_key: int = -1) -> Callable[[type[T]], type[T]]:
    """Declare a message with its versions and its first flexible version (KIP-482), if any."""
    schema = schema_from(versions, flexible_from, api_key)

    def decorate(cls: type[T]) -> type[T]:
        decorated = struct(cls)
        setattr(decorated, "__schema__", schema)  # noqa: B010 - mypy does not know this attribute of type[T]
        return decorated

    return decorate


def schema_from(versions: str, flexible_from: int | None = None, api_key: int = -1) -> MessageSchema:
    """Return the schema that the arguments of `message` describe."""
    flexible = NEVER if flexible_from is None else Versions(flexible_from)
    return MessageSchema(api_key, Versions.parse(versions), flexible)


def schema_of(cls: type[Any]) -> MessageSchema:
    schema: MessageSchema = cls.__schema__
    return schema


@derived
def message_layout(cls: type[Any], version: int) -> Layout:
    """Return the layout of a message. Raises `UnsupportedVersionError` for an unknown version."""
    schema = schema_of(cls)
    if version not in schema.versions:
        first, last = schema.versions.first, schema.versions.last
        raise UnsupportedVersionError(f"{cls.__name__} has versions {first} to {last}, not {version}")
    return layout(cls, version, version in schema.flexible)


@derived
def layout(struct: type[Any], version: int, flexible: bool) -> Layout:
    present = [field for field in fields_of(struct) if version in field.versions]
    tagged = [field for field in present if field.tag and version in field.tag.versions]
    return Layout(
        struct,
        version,
        flexible,
        in_line=tuple(field for field in present if field not in tagged),
        tagged=tuple(sorted(tagged, key=lambda field: field.tag.number if field.tag else 0)),
        missing=tuple(field for field in fields_of(struct) if field not in present),
    )


@derived
def fields_of(struct: type[Any]) -> tuple[Field, ...]:
    hints = get_type_hints(struct, include_extras=True)
    return tuple(_field(field.name, hints[field.name], field.default) for field in fields(struct))


def _field(name: str, annotation: Any, default: Any) -> Field:
    marks: list[Any] = []
    field_type, may_be_null = _unwrap(annotation, marks)
    tag = next((mark for mark in marks if isinstance(mark, Tag)), None)
    null = next((mark for mark in marks if isinstance(mark, Nullable)), Nullable(ALWAYS))
    return Field(
        name,
        field_type,
        default,
        versions=next((mark for mark in marks if isinstance(mark, Versions)), tag.versions if tag else ALWAYS),
        nullable=null.versions if may_be_null else NEVER,
        tag=tag,
        ignorable=ignorable in marks,
    )


def _unwrap(annotation: Any, marks: list[Any]) -> tuple[FieldType, bool]:
    """Return the wire type in an annotation and whether it may be null; append the marks to `marks`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner, *found = arguments
        marks += found
        wire_type = next((mark for mark in found if isinstance(mark, Fixed | Sized)), None)
        return (wire_type, False) if wire_type else _unwrap(inner, marks)
    if origin in (Union, UnionType):
        (non_null,) = (argument for argument in arguments if argument is not NoneType)
        return _unwrap(non_null, marks)[0], True
    if origin is tuple:
        return ArrayOf(_unwrap(arguments[0], [])[0]), False
    return StructOf(annotation), False


@derived
def minimum_size(field_type: FieldType, version: int, flexible: bool) -> int:
    """Return the minimum size of a value in bytes, to check counts of untrusted input."""
    if isinstance(field_type, Fixed):
        return WIDTH[field_type.code]
    if isinstance(field_type, ArrayOf):
        return 1 if flexible else 4
    if isinstance(field_type, StructOf):
        shape = layout(field_type.struct, version, flexible)
        return int(flexible) + sum(
            1 if shape.is_nullable(field) and isinstance(field.type, StructOf)
            else minimum_size(field.type, version, flexible)
            for field in shape.in_line
        )  # fmt: skip
    if flexible:
        return 1
    return 2 if field_type.name == "string" else 4


WIDTH: Final = {"b": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}
