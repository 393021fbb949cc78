"""The metadata store has ZooKeeper's guarantees, and acknowledged writes survive a crash."""

import pytest

from highwater.reference.store.messages import (  # fmt: skip
    AddWatch,
    Connect,
    Create,
    Get,
    Ping,
    SetData,
    Stat,
    StoreRequest,
)
from highwater.reference.store.metadata_store import FLUSHED, SNAPSHOT
from highwater.reference.tests.driven import Driven


def test_ephemeral_nodes_are_deleted_exactly_when_their_session_ends() -> None:
    d = Driven()
    a, b = d.session("a"), d.session("b")
    d.ask(b, AddWatch("/"), "b")
    d.ask(a, Create("/lock", ephemeral=True))
    d.do(d.store.closed(d.now, "a"))
    d.at(900)
    d.ask(b, Ping(), "b")
    assert d.ask(b, Get("/lock"), "b").error == ""
    d.at(1_100)
    assert d.ask(b, Get("/lock"), "b").error == "NoNode"
    assert [(event.kind, event.path) for event in d.events("b")] == [("created", "/lock"), ("deleted", "/lock")]
    assert d.ask(a, Ping()).error == "SessionExpired"


def test_a_session_continues_on_a_new_connection() -> None:
    d = Driven()
    a = d.session("a")
    d.ask(a, Create("/lock", ephemeral=True))
    d.do(d.store.closed(d.now, "a"))
    assert d.ask(a, Connect(a, 1_000), "a2").session_id == a
    d.at(800)
    assert d.ask(a, Get("/lock"), "a2").error == ""


def test_reads_wait_for_earlier_writes_and_replies_wait_for_the_flush() -> None:
    d = Driven()
    s = d.session()
    d.said.clear()
    d.do(d.store.receive(d.now, "a", StoreRequest(1, s, Create("/x"))), flush=False)
    d.do(d.store.receive(d.now, "a", StoreRequest(2, s, Get("/x"))), flush=False)
    assert d.said == []


def test_acknowledged_writes_survive_a_crash() -> None:
    d = Driven()
    s = d.session()
    d.ask(s, Create("/kept", b"1"))
    d.ask(s, SetData("/kept", b"2", 0))
    d.do(d.store.receive(d.now, "a", StoreRequest(9, s, Create("/lost"))), flush=False)
    d.disk.lose_unflushed()
    again = Driven(d.disk)
    assert again.ask(s, Get("/kept")).data == b"2"
    assert again.ask(s, Get("/kept")).stat.version == 1  # type: ignore[union-attr]
    assert again.ask(s, Get("/lost")).error == "NoNode"


def test_a_recovered_write_is_flushed_before_it_is_visible() -> None:
    """A write that only the page cache kept must be flushed first: a power failure could still lose it."""
    d = Driven()
    s = d.session()
    d.do(d.store.receive(d.now, "a", StoreRequest(9, s, Create("/unsure"))), flush=False)
    again = Driven(d.disk)
    assert again.ask(s, Get("/unsure")).error == ""
    d.disk.lose_unflushed()
    assert Driven(d.disk).ask(s, Get("/unsure")).error == ""


def test_a_torn_log_entry_is_truncated() -> None:
    d = Driven()
    s = d.session()
    d.ask(s, Create("/kept"))
    d.disk.append("store.0.log", b"\x00\x00\x00\x50\x12\x34\x56\x78 torn")
    again = Driven(d.disk)
    assert again.ask(s, Get("/kept")).error == ""
    assert again.ask(s, Create("/more")).error == ""


@pytest.mark.parametrize("crash_after", range(1, 60, 3))
@pytest.mark.parametrize("lost", [SNAPSHOT, FLUSHED], ids=["the snapshot's flush", "a write's flush"])
def test_snapshots_replace_logs_and_a_crash_loses_no_acknowledged_write(crash_after: int, lost: str) -> None:
    """The crash loses unflushed data, once during a snapshot and once during a write."""
    d = Driven(snapshot_bytes=300)
    a, b = d.session("a"), d.session("b")
    d.ask(a, Create("/x"))
    d.ask(a, Create("/mine", ephemeral=True))
    for number in range(crash_after):
        d.ask(a, SetData("/x", b"%d" % number, number))
    d.lose = lost
    d.ask(a, SetData("/x", b"last"))
    d.disk.lose_unflushed()
    files = [name for name in d.disk.names("") if name.startswith("store.")]
    assert len(files) <= 6, files
    again = Driven(d.disk, snapshot_bytes=300)
    assert again.ask(b, Get("/mine"), "b").stat == Stat(0, 4, a)
    found = again.ask(b, Get("/x"), "b")
    assert found.stat is not None
    assert found.stat.version >= crash_after
    assert found.data == (b"last" if found.stat.version > crash_after else b"%d" % (crash_after - 1))
    assert again.ask(a, SetData("/x", b"new", found.stat.version)).error == ""
    assert again.ask(a, Create("/later")).stat.created > 5  # type: ignore[union-attr]
