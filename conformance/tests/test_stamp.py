"""The properties of a run in its report."""

import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from highwater.conformance.report import SCHEMA, schema_digest, stamp_now
from highwater.conformance.runner import Options
from highwater.errors import UsageError
from highwater.reference.wire.registry import APIS
from highwater.releases import NEWEST, fetch_release

GONE = "none"
"""The valid versions in Apache Kafka's definition of a message that was only used with ZooKeeper."""


def test_the_wire_tables_match_the_named_release() -> None:
    try:
        folder = fetch_release(NEWEST)
    except UsageError as missing:
        pytest.skip(str(missing))
    assert SCHEMA.removeprefix("Apache Kafka ") == NEWEST.rpartition(".")[0]
    with zipfile.ZipFile(folder / f"kafka-clients-{NEWEST}.jar") as jar:
        requests = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+Request\.json", name)]
        newest = dict(newest_versions(jar.read(name).decode() for name in requests))
    assert {key: api.max_version for key, api in APIS.items() if newest[key] != GONE} == {
        key: int(newest[key]) for key in APIS if newest[key] != GONE
    }


def newest_versions(definitions: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield API key and newest valid version of each definition; headers have no key."""
    for definition in definitions:
        key, versions = re.search(r'"apiKey": (\d+)', definition), re.search(r'"validVersions": "([^"]+)"', definition)
        if key and versions:
            yield int(key[1]), versions[1].rpartition("-")[2]


def test_a_stamp_has_the_options_that_differ_from_defaults() -> None:
    stamp = stamp_now(Options(areas=["PRD"], timeout_s=1.0, command_config=Path("c.properties")))
    assert stamp.options == {"areas": ["PRD"], "timeout_s": 1.0, "command_config": "c.properties"}
    assert stamp.schema.startswith(f"{SCHEMA}, {len(APIS)} APIs, ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", stamp.started)
    assert stamp_now(Options()).options == {}


def test_other_versions_give_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_digest()
    monkeypatch.delitem(APIS, 18)
    assert schema_digest() != before
