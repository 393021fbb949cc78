"""The metadata store against a dict: versions, ephemerals, sessions, watches, and crashes around a write."""

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
Told = tuple[str, str, str]  # peer, kind, path


@dataclass
class Tree:
    """ZooKeeper in a dict: path -> (data, version, session that owns it or 0)."""

    nodes: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)

    def write(self, session: int, operation: Write) -> tuple[str, str]:
        """Its error, or what watchers hear of it."""
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
    """Each peer has one session at a time; `heard_ms` is when the store last heard of it, by its session."""

    @initialize()
    def begin(self) -> None:
        self.store = Driven(snapshot_bytes=SNAPSHOT_BYTES)
        self.tree = Tree()
        self.heard_ms: dict[int, int] = {}
        self.sessions: dict[str, int] = {}
        self.watches: dict[int, set[str]] = {}
        self.linked: dict[int, str] = {}
        self.told: list[Told] = []  # what watchers must have heard
        self.crashes = 0

    def _announce(self, kind: str, path: str) -> None:
        for session in sorted(self.heard_ms):
            roots = self.watches.get(session, set())
            if session in self.linked and any(path == root or path.startswith(f"{root}/") for root in roots):
                self.told.append((self.linked[session], kind, path))

    def _ask(self, peer: str, operation: Operation) -> StoreReply:
        """What the store answers; a session that it does not know is told so, whatever it asks."""
        session = self.sessions.get(peer, 0)
        reply = self.store.ask(session, operation, peer)
        assert (reply.error == "SessionExpired") is (session not in self.heard_ms), "SessionExpired"
        if session in self.heard_ms:
            self.heard_ms[session], self.linked[session] = self.store.now.monotonic_ms, peer
        return reply

    # -- steps -----------------------------------------------------------------------------------

    @rule(peer=peers)
    def connect(self, peer: str) -> None:
        """Go on with the session, or begin another when it is over."""
        session = self.sessions.get(peer, 0)
        reply = self.store.ask(session, Connect(session, TIMEOUT_MS), peer)
        if session and session not in self.heard_ms:
            assert reply.error == "SessionExpired"
            reply = self.store.ask(0, Connect(0, TIMEOUT_MS), peer)
            event("session began anew")
        assert not reply.error
        assert session not in self.heard_ms or reply.session_id == session
        assert session in self.heard_ms or reply.session_id not in self.heard_ms
        self.sessions[peer] = reply.session_id
        self.heard_ms[reply.session_id], self.linked[reply.session_id] = self.store.now.monotonic_ms, peer

    @rule(peer=peers, operation=writes)
    def write(self, peer: str, operation: Write) -> None:
        reply = self._ask(peer, operation)
        if reply.error == "SessionExpired":
            return
        error, kind = self.tree.write(self.sessions[peer], operation)
        assert reply.error == error, operation
        if error == "BadVersion":
            event("fenced store write")
        if kind:
            self._announce(kind, operation.path)

    @precondition(lambda self: bool(self.tree.nodes))
    @rule(peer=peers, data=st.data(), ahead=st.sampled_from([-1, 0, 1]))
    def write_under_a_version(self, peer: str, data: st.DataObject, ahead: int) -> None:
        """The present one, or its neighbour."""
        path = data.draw(st.sampled_from(sorted(self.tree.nodes)))
        self.write(peer, SetData(path, b"v", self.tree.nodes[path][1] + ahead))

    @rule(peer=peers, operations=st.lists(writes, min_size=1, max_size=3, unique_by=lambda each: each.path))
    def write_all_or_nothing(self, peer: str, operations: list[Write]) -> None:
        reply = self._ask(peer, Multi(tuple(operations)))
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
                self._announce(kind, operation.path)

    @rule(peer=peers, path=paths)
    def watch(self, peer: str, path: str) -> None:
        if not self._ask(peer, AddWatch(path)).error:
            self.watches.setdefault(self.sessions[peer], set()).add(path)

    @rule(peer=peers)
    def lose_the_link(self, peer: str) -> None:
        """Which ends no session."""
        self.store.do(self.store.store.closed(self.store.now, peer))
        self.linked = {session: other for session, other in self.linked.items() if other != peer}

    @rule(later_ms=st.sampled_from([100, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def time_passes(self, later_ms: int) -> None:
        """Whoever was silent for too long is gone, with what it alone held."""
        self.store.at(self.store.now.monotonic_ms + later_ms)
        for session, heard_ms in sorted(self.heard_ms.items()):
            if self.store.now.monotonic_ms - heard_ms > TIMEOUT_MS:
                self._expired(session)

    def _expired(self, session: int) -> None:
        event("session expired")
        for path in sorted(path for path, node in self.tree.nodes.items() if node[2] == session):
            del self.tree.nodes[path]
            self._announce("deleted", path)
        del self.heard_ms[session]
        self.linked.pop(session, None)

    @precondition(lambda self: self.sessions.get("p", 0) in self.heard_ms)
    @rule(operation=writes, lose=st.sampled_from(["nothing", "unflushed", "torn"]))
    def crash_in_the_middle_of_a_write(self, operation: Write, lose: Lose) -> None:
        """A write that was not answered has happened or has not; all that was answered has."""
        self.crashes += 1
        session, store = self.sessions["p"], self.store
        store.do(store.store.receive(store.now, "p", StoreRequest(9, session, operation)), flush=False)
        store.disk.lose(lose, Stream(self.crashes))
        self.store = Driven(store.disk, snapshot_bytes=SNAPSHOT_BYTES)
        self.heard_ms = dict.fromkeys(self.heard_ms, 0)
        self.watches, self.linked, self.told = {}, {}, []
        after = deepcopy(self.tree)
        after.write(session, operation)
        if self._stored() == after.nodes:
            self.tree = after
        elif lose != "nothing":
            event("lost write")

    # -- what must hold --------------------------------------------------------------------------

    def _stored(self) -> dict[str, tuple[bytes, int, int]]:
        found: dict[str, tuple[bytes, int, int]] = {}
        for path in PATHS:
            node = self.store.store._tree.get(path)
            if node is not None:
                found[path] = node.data, node.stat.version, node.stat.ephemeral_owner
        return found

    @invariant()
    def every_version_is_that_of_the_model(self) -> None:
        """VersionCas of ControllerFailover: who writes under an old version is told so, and nothing changes."""
        assert self._stored() == self.tree.nodes

    @invariant()
    def watchers_heard_of_everything_in_order(self) -> None:
        for peer in PEERS:
            heard = [(peer, str(each.kind), each.path) for each in self.store.events(peer)]
            assert heard == [each for each in self.told if each[0] == peer]

    @precondition(lambda self: self.sessions.get("q", 0) in self.heard_ms)
    @rule(path=st.sampled_from(["/", *PATHS]))
    def read(self, path: str) -> None:
        """A reader is told what the model holds, and the names of the children."""
        reply: Any = self._ask("q", Get(path))
        if path != "/":
            known = self.tree.nodes.get(path)
            assert (reply.error == "NoNode") is (known is None)
            assert known is None or (reply.data, reply.stat.version, reply.stat.ephemeral_owner) == known
        children = self._ask("q", Children(path))
        below = {other.rpartition("/") for other in self.tree.nodes}
        assert set(children.children) == {name for parent, _, name in below if (parent or "/") == path}
        assert not self._ask("q", Ping()).error
