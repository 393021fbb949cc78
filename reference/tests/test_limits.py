"""Limits on unauthenticated connections of a broker process, and its memory under a thousand of them."""

import contextlib
import random
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from highwater.reference.client.cluster import ClusterClient
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.wire.framing import encode_request
from highwater.reference.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from highwater.reference.wire.messages.metadata import ApiVersionsRequest
from highwater.reference.wire.messages.topics import CreatableTopic, CreateTopicsRequest

pytestmark = pytest.mark.xdist_group("limits")
MIB = 1 << 20
HOSTILE = 1_000
FRAME_MAX, BUDGET = 8 * MIB, 32 * MIB
PER_CONNECTION = 64 * 1024
PER_ADDRESS = 5
HELLO = encode_request(ApiVersionsRequest(), 0, 7, "good")
SEED = 20261121


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings: dict[str, object] = {
        "socket_request_max_bytes": FRAME_MAX,
        "queued_max_request_bytes": BUDGET,
        "request_timeout_ms": 3_000,
        "connections_max_idle_ms": 4_000,
    }
    yield from started(Cluster(1, settings=settings))


@pytest.fixture(scope="module")
def strict() -> Iterator[Cluster]:
    yield from started(Cluster(1, settings={"max_connections_per_ip": PER_ADDRESS, "max_connections": 12}))


def started(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.start_all()
        cluster.wait_until_ready()
        yield cluster
    finally:
        cluster.stop_all()


def connect(cluster: Cluster, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = cluster.addresses["1"].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0))


def is_served(connection: socket.socket) -> bool:
    try:
        connection.sendall(HELLO)
        return connection.recv(4096)[4:8] == b"\0\0\0\7"
    except OSError:
        return False


def is_cut(connection: socket.socket, drop: bytes = b"") -> bool:
    """Wait for the broker to close the connection without reading; `drop` is sent repeatedly so that it is not idle.

    If the receive buffer is full of unread replies, the kernel reports the close only to a sender.
    """
    poll, deadline = select.poll(), time.monotonic() + 60
    poll.register(connection, select.POLLRDHUP)
    with contextlib.suppress(ConnectionError):
        while not poll.poll(100):
            assert time.monotonic() < deadline
            with contextlib.suppress(BlockingIOError):
                connection.send(drop, socket.MSG_DONTWAIT) if drop else None
    return True


def test_an_oversized_frame_closes_only_its_connection(cluster: Cluster) -> None:
    for size in (FRAME_MAX + 1, 0x7FFFFFFF, -1, -(1 << 31)):
        with connect(cluster) as hostile, connect(cluster) as good:
            hostile.sendall(size.to_bytes(4, "big", signed=True))
            assert is_cut(hostile), size
            assert is_served(good)


def test_an_idle_connection_is_closed(cluster: Cluster) -> None:
    with connect(cluster) as silent:
        assert is_served(silent)
        assert is_cut(silent)


def test_a_connection_with_a_slow_frame_is_closed(cluster: Cluster) -> None:
    """The connection is never idle, but its request is never complete."""
    with connect(cluster) as dripping:
        dripping.sendall((1000).to_bytes(4, "big"))
        assert is_cut(dripping, b"\0")


def test_a_connection_with_unread_replies_is_closed(cluster: Cluster) -> None:
    """Until then the broker buffers only one or two replies, not all that were requested."""
    with ClusterClient(cluster.addresses["1"]) as client:
        topic = CreatableTopic(name="slow", num_partitions=1, replication_factor=1)
        client.controller().call(CreateTopicsRequest(topics=(topic,)))
    producer = Producer({"bootstrap.servers": cluster.addresses["1"]})
    for _ in range(8):
        producer.produce("slow", bytes(MIB // 2))
    assert producer.flush(30) == 0
    before = memory(cluster, "VmHWM")
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=4 * MIB)
    fetch = FetchRequest(min_bytes=1, topics=(FetchTopic(topic="slow", partitions=(part,)),))
    with connect(cluster) as slow:
        for number in range(80):  # 320 MB
            slow.sendall(encode_request(fetch, 12, number, "slow"))
        assert is_cut(slow, b"\0")
    assert memory(cluster, "VmHWM") - before < BUDGET


def test_connections_are_limited_per_address(strict: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        mine = [stack.enter_context(connect(strict, "127.0.0.2")) for _ in range(PER_ADDRESS + 1)]
        assert [is_served(each) for each in mine] == [True] * PER_ADDRESS + [False]
        assert is_served(stack.enter_context(connect(strict, "127.0.0.3")))
        mine[0].close()
        eventually(lambda: is_served(stack.enter_context(connect(strict, "127.0.0.2"))))


def test_connections_are_limited_in_total(strict: Cluster) -> None:
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(connect(strict, f"127.0.1.{n}")) for n in range(1, 16)]
        served = sum(map(is_served, many))
        assert 0 < served <= 12
        for each in many:
            each.close()
        eventually(lambda: is_served(stack.enter_context(connect(strict, "127.0.0.9"))))


def eventually(step: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not step():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def memory(cluster: Cluster, line: str) -> int:
    """Return a memory size of the broker process in bytes: VmRSS (current) or VmHWM (peak)."""
    status = Path(f"/proc/{cluster.nodes.pid('1')}/status").read_text()
    return int(next(row for row in status.splitlines() if row.startswith(line)).split()[1]) * 1024


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * HOSTILE:
        pytest.skip(f"this machine allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * HOSTILE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.soak
def test_memory_stays_bounded_with_a_thousand_hostile_connections(many_descriptors: None) -> None:
    """A quarter each sends garbage, half a frame, requests whose replies it does not read, or nothing."""
    settings: dict[str, object] = {"socket_request_max_bytes": FRAME_MAX, "queued_max_request_bytes": BUDGET}
    for cluster in started(Cluster(1, settings=settings)):
        before, chance = memory(cluster, "VmRSS"), random.Random(SEED)
        with contextlib.ExitStack() as stack, connect(cluster) as good:
            hostile = [stack.enter_context(connect(cluster)) for _ in range(HOSTILE)]
            for connection in hostile:
                connection.setblocking(False)
            for round_ in range(12):
                for number, connection in enumerate(hostile):
                    push(connection, number % 4, round_, chance)
                assert is_served(good), f"seed {SEED}"
            most = memory(cluster, "VmHWM")
        print(f"{before / MIB:.0f} MiB grew by {(most - before) / MIB:.0f}")
        assert most - before < 2 * BUDGET + HOSTILE * PER_CONNECTION, f"{(most - before) / MIB:.0f} MiB"
        assert cluster.is_running("1")


def push(connection: socket.socket, kind: int, round_: int, chance: random.Random) -> None:
    start = b"" if round_ else FRAME_MAX.to_bytes(4, "big")
    data = (chance.randbytes(600), start + bytes(256 * 1024), HELLO * 30, b"")[kind]
    with contextlib.suppress(OSError):  # closed already, or its send buffer is full
        connection.send(data)
