"""Kafka's own message definitions, read where they are published: in the kafka-clients jar and in kafka-python."""

import json
import re
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from highwater.errors import UsageError
from highwater.toolchain import fetch_artefact

Definition = dict[str, Any]
ANY: Final = 0x7FFF


def parse(text: str) -> Definition:
    """JSON with whole-line `//` comments."""
    definition: Definition = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return definition


@cache
def from_jar() -> dict[str, Definition]:
    """Return definitions by message name; empty if the jars cannot be downloaded.

    The jar of 3.9 still has what ZooKeeper needed. What it lacks, or has as a draft, comes from that of 4.3.
    """
    try:
        newer, older = (_read_jar(fetch_artefact(name)) for name in ("kafka-clients-4", "kafka-clients"))
    except UsageError:
        return {}
    return newer | {name: found for name, found in older.items() if not _is_draft(found, older)}


def _read_jar(path: Path) -> dict[str, Definition]:
    with zipfile.ZipFile(path) as jar:
        names = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        found = [parse(jar.read(name).decode()) for name in names]
    return {definition["name"]: definition for definition in found}


def _is_draft(definition: Definition, jar: dict[str, Definition]) -> bool:
    """Only requests say whether their newest version may still change."""
    request = jar.get(re.sub("Response$", "Request", definition["name"]), definition)
    return bool(request.get("latestVersionUnstable", False))


@cache
def from_kafka_python() -> dict[str, Definition]:
    """By message name; they reach two Kafka releases further than the jar's, but leave out what ZooKeeper needed."""
    package = find_spec("kafka")
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent / "protocol" / "schemas" / "resources"
    found = [parse(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {definition["name"]: definition for definition in found}


def span(text: str | None) -> range:
    """`3`, `0-12`, `9+` or `none` as the versions themselves."""
    if text in (None, "none"):
        return range(0)
    first, _, last = str(text).partition("-")
    if first.endswith("+"):
        return range(int(first[:-1]), ANY)
    return range(int(first), int(last or first) + 1)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def structs(definition: Definition) -> dict[str, list[Definition]]:
    """Return the fields of the structs that several fields share (`commonStructs`)."""
    return {common["name"]: common["fields"] for common in definition.get("commonStructs", [])}


DEFAULTS: Final[dict[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": bytes(16),
    "float64": 0.0,
}


def default(field: Definition) -> Any:
    """A field's default as a Python value; a struct's is None here, for it depends on its fields."""
    kind, stated = field["type"], field.get("default")
    if stated == "null":
        return None
    if kind.startswith("[]"):
        return ()
    if stated in (None, ""):
        return DEFAULTS.get(kind, 0) if kind[0].islower() else None
    if kind == "bool":
        return str(stated) == "true" or stated is True
    return stated if kind == "string" else int(str(stated), 0)
