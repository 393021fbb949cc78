"""`highwater record --fault`: the history has what the clients saw, and the faults."""

from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import Verdict
from highwater.reports.audit import audit
from highwater.reports.recorder.tests.test_tls import recorder
from highwater.spec.formats.history import NEMESIS, read_history

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
RECORDS = 20


def test_errors_that_a_client_survives_break_no_promise(tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer

    out = tmp_path / "history.ndjson"
    answer, close = "Produce topic=s: answer NOT_LEADER_OR_FOLLOWER 2 times", "Produce response: close nth 2"
    faults = (answer, close, "Fetch: close once")
    options = [option for line in faults for option in ("--fault", line)]
    with ReferenceCluster(1) as cluster, recorder(cluster.bootstrap, out, *options) as address:
        producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0})
        for number in range(RECORDS):
            producer.produce("s", b"%d" % number)
            assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["s"])
        assert len(consumer.consume(RECORDS, 120)) == RECORDS
        consumer.close()
    _, events = read_history(out)
    struck = [str(event.value) for event in events if event.process == NEMESIS]
    assert sorted(line.partition(": ")[2] for line in struck) == sorted([answer, *faults])
    assert audit(out).verdict is Verdict.VALID
