"""Requests that are rows of `rows/*.toml`: those that need an operation, those for a coordinator, and harmless ones.

The fields of a row are plain data, in which `$topic` and the like are the names that a case has chosen.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from highwater.conformance.client.broker import Topic, batch
from highwater.conformance.client.requests import API_BY_NAME, request
from highwater.conformance.models import acls
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.schema import ZERO_UUID

ROWS: Final = Path(__file__).parent / "rows"


@dataclass(frozen=True, slots=True)
class Names:
    """What a request refers to."""

    topic: Topic
    group: str
    transactional_id: str
    topic_id: bytes = ZERO_UUID

    def request(self, api: str, fields: Mapping[str, Any]) -> Any:
        """Return the request with these fields, in which `$` begins a name."""
        values = {
            "$topic": self.topic.name, "$partition": self.topic.partition, "$topic_id": self.topic_id,
            "$group": self.group, "$id": self.transactional_id, "$null": None, "$batch": batch(b"refused"),
        }  # fmt: skip
        return request(api, **_resolved(dict(fields), values))


def _resolved(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        return {name: _resolved(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, values) for each in value]
    return values[value] if isinstance(value, str) and value.startswith("$") else value


EXAMPLE: Final = Names(Topic("t", "", 0), "g", "x")


class Needed(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A request that needs an operation; `error` leads to the error code, `newest` limits the version.

    The broker forwards some requests to the controller, which learns of new lists at another time.
    """

    api: str
    kind: str
    needs: str
    fields: dict[str, Any] = {}
    error: str = "error_code"
    newest: int | None = None
    forwarded: bool = False

    @property
    def resource(self) -> int:
        return int(getattr(acls, self.kind))

    @property
    def operation(self) -> int:
        return int(getattr(acls, self.needs))

    @property
    def refusal(self) -> ErrorCode:
        return ErrorCode[f"{self.kind}_AUTHORIZATION_FAILED"]

    @property
    def type(self) -> type[Any]:
        return API_BY_NAME[self.api].request

    def request(self, names: Names) -> Any:
        return names.request(self.api, self.fields)


class Misdirected(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A request for a coordinator in its `forms`, each with its oldest version."""

    api: str
    forms: list[list[Any]]
    newest: int | None = None
    since: str = ""

    @property
    def oldest(self) -> int:
        return int(self.forms[0][0])

    @property
    def paths(self) -> list[str]:
        return [path for _, _, *paths in self.forms for path in paths]

    @property
    def names_ids(self) -> bool:
        return "$topic_id" in str(self.forms)

    def request(self, names: Names, version: int) -> Any:
        *_, fields = (fields for oldest, fields, *_ in self.forms if oldest <= version)
        return names.request(self.api, fields)

    def path(self, version: int) -> str:
        *_, path = (path for oldest, _, *paths in self.forms for path in paths if oldest <= version)
        return str(path)


def _read(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((ROWS / f"{name}.toml").read_text())


def _misdirected(needed: Mapping[str, Needed], name: str, row: Mapping[str, Any]) -> Misdirected:
    api = name.split(maxsplit=1)[0]
    forms = row.get("forms") or [[0, needed[api].fields, needed[api].error]]
    return msgspec.convert({**row, "api": api, "forms": forms}, Misdirected)


NEEDED: Final[Mapping[str, Mapping[str, Needed]]] = {
    kind: {api: msgspec.convert({"api": api, "kind": kind, **row}, Needed) for api, row in rows.items()}
    for kind, rows in _read("denied").items()
}
"""By kind of resource and API."""
FORWARDED_CONTROL: Final = msgspec.structs.replace(
    NEEDED["TOPIC"]["CreatePartitions"], fields=NEEDED["TOPIC"]["CreatePartitions"].fields | {"validate_only": True}
)
CONTROLS: Final = {
    kind: [NEEDED[kind][api] for api in apis]
    for kind, apis in {
        "TOPIC": ("Metadata", "DescribeConfigs"),
        "GROUP": ("FindCoordinator", "DeleteGroups"),
        "TRANSACTIONAL_ID": ("FindCoordinator", "InitProducerId"),
    }.items()
}
"""Two requests for each kind of resource that need different operations: one of them stays allowed."""
MISDIRECTED: Final = {
    kind: {name: _misdirected(NEEDED[kind], name, row) for name, row in rows.items()}
    for kind, rows in _read("misdirected").items()
}
HARMLESS: Final = {API_BY_NAME[api].key: EXAMPLE.request(api, fields) for api, fields in _read("harmless").items()}
