"""TLS before and behind the recorder: two of them in a row, one a client of the other."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from highwater.conformance.targets.reference import ReferenceCluster
from highwater.errors import UsageError
from highwater.fuzz.proxy.upstream import tls_for_clients, tls_to_brokers
from highwater.reports.audit import audit

pytestmark = [pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]
RECORDS = 20


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that vouches for itself, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key"), "-out", str(folder / "chain")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "chain").read_bytes() + (folder / "key").read_bytes())
    return both


@contextmanager
def recorder(upstream: str, out: Path, *options: str) -> Iterator[str]:
    """Where it listens."""
    command = [sys.executable, "-m", "highwater", "record", "--listen", "127.0.0.1:0", "--upstream", upstream]
    with subprocess.Popen([*command, "--out", str(out), *options], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            found = re.search(r"Connect clients to (\S+);", running.stdout.readline())
            assert found
            yield found[1]
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)
    assert running.returncode == 0


def test_both_sides_may_speak_tls_and_a_broker_may_be_down(certificate: Path, tmp_path: Path) -> None:
    from confluent_kafka import Consumer, Producer

    first, second, pem = tmp_path / "first.ndjson", tmp_path / "second.ndjson", str(certificate)
    with ExitStack() as stack:
        cluster = stack.enter_context(ReferenceCluster(1))
        upstream = f"127.0.0.1:1,{cluster.bootstrap}"  # nobody listens on the first
        behind = stack.enter_context(recorder(upstream, first, "--listen-cert", pem))
        front = stack.enter_context(recorder(behind, second, "--tls-ca", pem, "--listen-cert", pem))
        settings = {"bootstrap.servers": front, "security.protocol": "ssl", "ssl.ca.location": pem}
        producer = Producer({**settings, "enable.idempotence": True})
        for number in range(RECORDS):
            producer.produce("s", b"%d" % number)
        assert producer.flush(120) == 0
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["s"])
        assert len(consumer.consume(RECORDS, 120)) == RECORDS
        consumer.close()
    results = [audit(each) for each in (first, second)]
    assert [result.verdict for result in results] == ["valid", "valid"]
    assert all(result.operations > RECORDS for result in results)


def test_what_is_no_certificate_is_told(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=r"no\.pem"):
        tls_for_clients(tmp_path / "no.pem")
    with pytest.raises(UsageError, match="nowhere"):
        tls_to_brokers(tmp_path / "nowhere", None)
    assert tls_to_brokers(None, None) is None
