"""Compare the metadata store with a dict: versions, ephemeral nodes, sessions, watches, crashes during a write."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from highwater.reference.drivers.simulation.chance import Stream
from highwater.reference.drivers.simulation.disk import Lose
from highwater.reference.store.messages import (
    ANY_VERSION,
    AddWatch,
    Check,
    Children,
    Connect,
    Create,
    Delete,
    Get,
    Multi,
    Operation,
    Ping,
    SetData,
    StoreReply,
    StoreRequest,
)
from highwater.reference.tests.driven import Driven

PATHS: Final = ("/a", "/a/x", "/a/y", "/b")
PEERS: Final = ("p", "q")
TIMEOUT_MS: Final = 1_000
SNAPSHOT_BYTES: Final = 600

paths = st.sampled_from(PATHS)
peers = st.sampled_from(PEERS)
versions = st.sampled_from([ANY_VERSION, 0, 1, 2])
data = st.binary(max_size=3)
writes = st.one_of(
    st.builds(Create, paths, data, st.booleans()),
    st.builds(SetData, paths, data, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)
Write = Create | SetData | Delete | Check
ExpectedEvent = tuple[str, str, str]  # peer, kind, path


@dataclass
class Tree:
    """ZooKeeper as a dict: path -> (data, version, owning session or 0)."""

    nodes: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)

    def write(self, session: int, operation: Write) -> tuple[str, str]:
        """Apply the operation; return its error and the kind of event that watchers receive, "" for none."""
        path = operation.path
        parent = path.rpartition("/")[0]
        known = self.nodes.get(path)
        if isinstance(operation, Create):
            if known is not None:
                return "NodeExists", ""
            if parent and parent not in self.nodes:
                return "NoNode", ""
            if parent and self.nodes[parent][2]:
                return "NoChildrenForEphemerals", ""
            self.nodes[path] = operation.data, 0, session if operation.ephemeral else 0
            return "", "created"
        if known is None:
            return "NoNode", ""
        if operation.version not in {ANY_VERSION, known[1]}:
            return "BadVersion", ""
        if isinstance(operation, SetData):
            self.nodes[path] = operation.data, known[1] + 1, known[2]
            return "", "changed"
        if isinstance(operation, Delete):
            if any(other.startswith(f"{path}/") for other in self.nodes):
                return "NotEmpty", ""
            del self.nodes[path]
            return "", "deleted"
        return "", ""


class StoreMachine(RuleBasedStateMachine):
    """Each peer has one session at a time; `last_request_ms` has the time of the last request of each session."""

    @initialize()
    def begin(self) -> None:
        self.store = Driven(snapshot_bytes=SNAPSHOT_BYTES)
        self.tree = Tree()
        self.last_request_ms: dict[int, int] = {}
        self.sessions: dict[str, int] = {}
        self.watches: dict[int, set[str]] = {}
        self.connected: dict[int, str] = {}
        self.expected_events: list[ExpectedEvent] = []  # in the order in which watchers must receive them
        self.crashes = 0

    def _expect_event(self, kind: str, path: str) -> None:
        for session in sorted(self.last_request_ms):
            roots = self.watches.get(session, set())
            if session in self.connected and any(path == root or path.startswith(f"{root}/") for root in roots):
                self.expected_events.append((self.connected[session], kind, path))

    def _request(self, peer: str, operation: Operation) -> StoreReply:
        """Return the reply of the store, which must be SessionExpired exactly if the session has ended."""
        session = self.sessions.get(peer, 0)
        reply = self.store.ask(session, operation, peer)
        assert (reply.error == "SessionExpired") is (session not in self.last_request_ms), "SessionExpired"
        if session in self.last_request_ms:
            self.last_request_ms[session], self.connected[session] = self.store.now.monotonic_ms, peer
        return reply

    # -- steps -----------------------------------------------------------------------------------

    @rule(peer=peers)
    def connect(self, peer: str) -> None:
        """Continue the session, or begin another one if it has expired."""
        session = self.sessions.get(peer, 0)
        reply = self.store.ask(session, Connect(session, TIMEOUT_MS), peer)
        if session and session not in self.last_request_ms:
            assert reply.error == "SessionExpired"
            reply = self.store.ask(0, Connect(0, TIMEOUT_MS), peer)
            event("session began again")
        assert not reply.error
        assert session not in self.last_request_ms or reply.session_id == session
        assert session in self.last_request_ms or reply.session_id not in self.last_request_ms
        self.sessions[peer] = reply.session_id
        self.last_request_ms[reply.session_id], self.connected[reply.session_id] = self.store.now.monotonic_ms, peer

    @rule(peer=peers, operation=writes)
    def write(self, peer: str, operation: Write) -> None:
        reply = self._request(peer, operation)
        if reply.error == "SessionExpired":
            return
        error, kind = self.tree.write(self.sessions[peer], operation)
        assert reply.error == error, operation
        if error == "BadVersion":
            event("fenced store write")
        if kind:
            self._expect_event(kind, operation.path)

    @precondition(lambda self: bool(self.tree.nodes))
    @rule(peer=peers, data=st.data(), ahead=st.sampled_from([-1, 0, 1]))
    def write_under_a_version(self, peer: str, data: st.DataObject, ahead: int) -> None:
        """Write with the current version, or with the one before or after it."""
        path = data.draw(st.sampled_from(sorted(self.tree.nodes)))
        self.write(peer, SetData(path, b"v", self.tree.nodes[path][1] + ahead))

    @rule(peer=peers, operations=st.lists(writes, min_size=1, max_size=3, unique_by=lambda operation: operation.path))
    def write_all_or_nothing(self, peer: str, operations: list[Write]) -> None:
        reply = self._request(peer, Multi(tuple(operations)))
        if reply.error == "SessionExpired":
            return
        tree = deepcopy(self.tree)
        results = [tree.write(self.sessions[peer], operation) for operation in operations]
        errors = [error for error, _ in results if error]
        assert reply.error == (errors[0] if errors else ""), operations
        if errors:
            event("nothing of a multi")
            return
        self.tree = tree
        for (_, kind), operation in zip(results, operations, strict=True):
            if kind:
                self._expect_event(kind, operation.path)

    @rule(peer=peers, path=paths)
    def watch(self, peer: str, path: str) -> None:
        if not self._request(peer, AddWatch(path)).error:
            self.watches.setdefault(self.sessions[peer], set()).add(path)

    @rule(peer=peers)
    def lose_the_link(self, peer: str) -> None:
        """Close the connection, which does not end the session."""
        self.store.do(self.store.store.closed(self.store.now, peer))
        self.connected = {session: other for session, other in self.connected.items() if other != peer}

    @rule(later_ms=st.sampled_from([100, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def time_passes(self, later_ms: int) -> None:
        """Let time pass; sessions without a request for too long expire, and their ephemeral nodes are deleted."""
        self.store.at(self.store.now.monotonic_ms + later_ms)
        for session, last_request_ms in sorted(self.last_request_ms.items()):
            if self.store.now.monotonic_ms - last_request_ms > TIMEOUT_MS:
                self._expire_session(session)

    def _expire_session(self, session: int) -> None:
        event("session expired")
        for path in sorted(path for path, node in self.tree.nodes.items() if node[2] == session):
            del self.tree.nodes[path]
            self._expect_event("deleted", path)
        del self.last_request_ms[session]
        self.connected.pop(session, None)

    @precondition(lambda self: self.sessions.get("p", 0) in self.last_request_ms)
    @rule(operation=writes, lose=st.sampled_from(["nothing", "unflushed", "torn"]))
    def crash_in_the_middle_of_a_write(self, operation: Write, lose: Lose) -> None:
        """Crash during a write: this write may be stored or not, but every answered one is."""
        self.crashes += 1
        session, store = self.sessions["p"], self.store
        store.do(store.store.receive(store.now, "p", StoreRequest(9, session, operation)), flush=False)
        store.disk.lose(lose, Stream(self.crashes))
        self.store = Driven(store.disk, snapshot_bytes=SNAPSHOT_BYTES)
        self.last_request_ms = dict.fromkeys(self.last_request_ms, 0)
        self.watches, self.connected, self.expected_events = {}, {}, []
        after = deepcopy(self.tree)
        after.write(session, operation)
        if self._stored() == after.nodes:
            self.tree = after
        elif lose != "nothing":
            event("lost write")

    # -- invariants ------------------------------------------------------------------------------

    def _stored(self) -> dict[str, tuple[bytes, int, int]]:
        found: dict[str, tuple[bytes, int, int]] = {}
        for path in PATHS:
            node = self.store.store._tree.get(path)
            if node is not None:
                found[path] = node.data, node.stat.version, node.stat.ephemeral_owner
        return found

    @invariant()
    def the_store_equals_the_model(self) -> None:
        """VersionCas of ControllerFailover: a write with an old version returns BadVersion and changes nothing."""
        assert self._stored() == self.tree.nodes

    @invariant()
    def watchers_received_all_events_in_order(self) -> None:
        for peer in PEERS:
            received = [(peer, str(found.kind), found.path) for found in self.store.events(peer)]
            assert received == [expected for expected in self.expected_events if expected[0] == peer]

    @precondition(lambda self: self.sessions.get("q", 0) in self.last_request_ms)
    @rule(path=st.sampled_from(["/", *PATHS]))
    def read(self, path: str) -> None:
        """Read a node and the names of its children, which must be those of the model."""
        reply: Any = self._request("q", Get(path))
        if path != "/":
            known = self.tree.nodes.get(path)
            assert (reply.error == "NoNode") is (known is None)
            assert known is None or (reply.data, reply.stat.version, reply.stat.ephemeral_owner) == known
        children = self._request("q", Children(path))
        below = {other.rpartition("/") for other in self.tree.nodes}
        assert set(children.children) == {name for parent, _, name in below if (parent or "/") == path}
        assert not self._request("q", Ping()).error
