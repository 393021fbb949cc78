"""kafkajs, the Node client: two codecs of its own, idempotence, transactions, and a group that commits."""

import itertools

import pytest

from highwater.reference.tests.clients.build import built, expected, run

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]  # the first time there is much to fetch
NAMES = itertools.count()


def test_kafkajs_writes_and_reads_back(bootstrap: str) -> None:
    place = built("node", "npm", "ci", "--no-audit", "--no-fund")
    ended = run("node", place / "roundtrip.js", bootstrap, f"node-{next(NAMES)}")
    assert ended.stdout.splitlines() == expected("none", "gzip", "idempotent", "committed", "last")
    # Five times twenty committed records, twenty aborted ones, two markers.
    last = [line for line in ended.stderr.splitlines() if line.startswith("committed")]
    assert last == ["committed 122"]
