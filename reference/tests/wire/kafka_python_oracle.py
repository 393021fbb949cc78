"""kafka-python 3 as an oracle; it reaches down to version 0 of what clients use."""

import warnings
from dataclasses import is_dataclass
from typing import Any, Final

from reference.wire.schema import Layout, derived, message_layout

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources, while it imports
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.consumer import metadata as consumer_metadata

PACKAGES: Final = (admin, consumer, consumer_metadata, metadata, producer, sasl)


@derived
def their_class(cls: type[Any], version: int) -> Any:
    """The same message in kafka-python, or None where it has not got that version."""
    found = next((getattr(package, cls.__name__) for package in PACKAGES if hasattr(package, cls.__name__)), None)
    if found is None or version > found._valid_versions[1]:
        return None
    return found


def write(message: Any, version: int) -> bytes:
    layout = message_layout(type(message), version)
    struct = their_class(type(message), version)._struct
    data: bytes = struct.encode(
        _to_dictionary(message, layout), version=version, compact=layout.flexible, tagged=layout.flexible
    )
    return data


def _to_dictionary(value: Any, layout: Layout) -> dict[str, Any]:
    """By kafka-python's names: they differ in runs of capitals only."""
    present = [*layout.in_line]
    present += [field for field in layout.tagged if getattr(value, field.name) != field.default]
    return {field.name: _plain(getattr(value, field.name), layout) for field in present}


def _plain(value: Any, layout: Layout) -> Any:
    if isinstance(value, tuple):
        return [_plain(each, layout) for each in value]
    if is_dataclass(value):
        return _to_dictionary(value, layout.of(type(value)))
    return value
