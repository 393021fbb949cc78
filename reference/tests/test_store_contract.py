"""Guarantees that brokers need of a metadata store, for the embedded one and for ZooKeeper."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from highwater.errors import UsageError
from highwater.reference.drivers.cluster import Cluster
from highwater.reference.store.messages import (
    AddWatch,
    Check,
    Children,
    Connect,
    Create,
    Delete,
    Get,
    Multi,
    Ping,
    SetData,
)
from highwater.reference.tests.driven import Driven
from highwater.reference.tests.stores import EmbeddedSession, Session, ZooKeeperSession, missing, zookeeper

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(600)]  # the first time there is much to fetch
Sessions = Callable[[], Session]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    try:
        with zookeeper(tmp_path_factory.mktemp("zookeeper")) as hosts:
            yield hosts
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["embedded", "zookeeper"])
def sessions(request: pytest.FixtureRequest) -> Iterator[Sessions]:
    opened: list[ZooKeeperSession] = []
    if request.param == "embedded":
        driven = Driven()
        names = iter("abcdef")
        yield lambda: EmbeddedSession(driven, next(names))
        return
    hosts: str = request.getfixturevalue("server")

    def open_session() -> Session:
        opened.append(ZooKeeperSession(hosts))
        return opened[-1]

    yield open_session
    for session in opened:
        session.close()


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """Return a path per test, because ZooKeeper keeps the nodes of other tests."""
    return f"/{request.node.name.replace('[', '-').rstrip(']')}"


def test_writes_with_a_stale_version_are_refused(sessions: Sessions, root: str) -> None:
    s = sessions()
    assert s.ask(Create(root, b"1")).error == ""
    assert s.ask(Create(root)).error == "NodeExists"
    assert s.ask(Create(f"{root}-no/parent")).error == "NoNode"
    changed = s.ask(SetData(root, b"2", 0))
    assert changed.stat is not None
    assert changed.stat.version == 1
    assert s.ask(SetData(root, b"3", 0)).error == "BadVersion"
    assert s.ask(Get(root)).data == b"2"
    assert s.ask(Delete(root, 0)).error == "BadVersion"
    assert s.ask(Delete(root, 1)).error == ""
    assert s.ask(Get(root)).error == "NoNode"
    assert s.ask(SetData(root, b"")).error == "NoNode"


def test_a_node_created_later_has_a_larger_zxid(sessions: Sessions, root: str) -> None:
    s = sessions()
    stats = [s.ask(Create(f"{root}{number}")).stat for number in range(3)]
    created = [stat.created for stat in stats if stat is not None]
    assert created == sorted(set(created))
    assert len(created) == 3
    assert s.ask(Get(f"{root}1")).stat == stats[1]


def test_multi_is_atomic(sessions: Sessions, root: str) -> None:
    s = sessions()
    s.ask(Create(root, b"1"))
    refused = s.ask(Multi((SetData(root, b"2", 0), Check(root, 7))))
    assert refused.error == "BadVersion"
    assert s.ask(Get(root)).data == b"1"
    done = s.ask(Multi((Create(f"{root}/y"), Check(root, 0), SetData(root, b"2", 0))))
    assert done.error == ""
    assert done.stats[-1] is not None
    assert done.stats[-1].version == 1
    assert s.ask(Children(root)).children == ("y",)
    assert s.ask(Delete(root)).error == "NotEmpty"


def test_a_multi_sees_the_versions_of_its_earlier_operations(sessions: Sessions, root: str) -> None:
    s = sessions()
    s.ask(Create(root))
    assert s.ask(Multi((Create(f"{root}/y"), Delete(root)))).error == "NotEmpty"
    assert s.ask(Multi((Create(f"{root}/y"), Delete(f"{root}/y"), Delete(root)))).error == ""
    assert s.ask(Get(root)).error == "NoNode"


def test_ephemeral_nodes_have_no_children(sessions: Sessions, root: str) -> None:
    s = sessions()
    s.ask(Create(root, ephemeral=True))
    assert s.ask(Create(f"{root}/y")).error == "NoChildrenForEphemerals"


def test_ephemeral_nodes_are_deleted_with_their_session(sessions: Sessions, root: str) -> None:
    a, b = sessions(), sessions()
    b.ask(AddWatch("/"))
    mine = a.ask(Create(root, ephemeral=True))
    assert mine.stat is not None
    assert mine.stat.ephemeral_owner != 0
    assert b.ask(Create(root)).error == "NodeExists"
    a.expire()
    assert b.events(2) == [("created", root), ("deleted", root)]
    assert b.ask(Get(root)).error == "NoNode"
    assert a.ask(Ping()).error in {"SessionExpired", "ConnectionLoss"}
    assert a.ask(Connect(1, 2_000)).error == "SessionExpired"


def test_watches_are_recursive_and_persistent(sessions: Sessions, root: str) -> None:
    a, b = sessions(), sessions()
    a.ask(Create(root))
    b.ask(AddWatch(root))
    a.ask(Create(f"{root}/y"))
    a.ask(SetData(f"{root}/y", b"1"))
    a.ask(Create(f"{root}z"))
    a.ask(SetData(f"{root}/y", b"2"))
    a.ask(Delete(f"{root}/y"))
    changed = ("changed", f"{root}/y")
    assert b.events(4) == [("created", f"{root}/y"), changed, changed, ("deleted", f"{root}/y")]


@pytest.mark.long
def test_brokers_run_on_zookeeper(server: str, tmp_path: Path) -> None:
    """Three brokers elect a controller, create a topic, write, lose the controller, and continue."""
    from confluent_kafka import Producer  # requested only if ZooKeeper runs
    from confluent_kafka.admin import AdminClient, NewTopic

    settings: dict[str, object] = {
        "metadata_store": f"zookeeper://{server}",
        "metadata_store_session_timeout_ms": 2_000,
        "default_replication_factor": 3,
        "replica_lag_time_max_ms": 3_000,
    }
    started = Cluster(3, folder=tmp_path / "cluster", settings=settings)
    try:
        started.start_all()
        started.wait_until_ready()
        bootstrap = ",".join(started.addresses.values())
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        for number in range(200):
            producer.produce("t", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None)
            if number == 100:
                producer.flush(30)
                started.kill(str(admin.list_topics(timeout=10).controller_id))
        assert producer.flush(60) == 0
        assert failed == []
    finally:
        started.stop_all()
