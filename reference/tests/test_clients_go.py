"""franz-go, the Go client: every codec, idempotence, transactions, assignment and group."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from highwater.reference.tests.clients.build import built, expected, run
from highwater.reference.tools import groups

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]  # the first time there is much to fetch
NAMES = itertools.count()


@pytest.mark.long  # building it takes twenty seconds of processor time; the clients in other languages stay
def test_franz_go_writes_and_reads_back(bootstrap: str) -> None:
    program = built("go", "go", "build", "-o", "roundtrip", ".") / "roundtrip"
    topic = f"go-{next(NAMES)}"
    read = run(program, bootstrap, topic).stdout.splitlines()
    once = expected("none", "gzip", "snappy", "lz4", "zstd", "plain", "committed", "last")
    assert read == once * 2, "read once by assignment and once in the group, without aborted records"
    shown = CliRunner().invoke(groups.app, ["describe", topic, "--bootstrap-server", bootstrap, "--json"])
    (row,) = json.loads(shown.stdout)["offsets"]
    assert row["lag"] == 0
