"""A fetch session of a walk (KIP-227): each reply is compared with the model of the session and of its logs."""

from collections.abc import Sequence
from typing import Any, Final

from highwater.conformance.cases.support.log_walks.reads import (
    READ_UNCOMMITTED,
    UNLIMITED,
    Read,
    Room,
    compare_read,
    expected_read,
    fetch_request,
    results,
)
from highwater.conformance.cases.support.log_walks.walk import Key, Walk, compare
from highwater.conformance.client.broker import BY_ID_SINCE, Broker
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.fetch_sessions import FetchSession
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.fetch import FetchRequest, ForgottenTopic

SESSIONS_SINCE: Final = 7
NO_SESSION, FIRST_EPOCH, LAST_EPOCH = 0, 0, -1


class SessionWalk:
    """A session with one broker; requests name topics by id if `by_id`."""

    def __init__(self, walk: Walk, broker: Broker, *, by_id: bool, isolation: int = READ_UNCOMMITTED) -> None:
        first, last = (BY_ID_SINCE, None) if by_id else (SESSIONS_SINCE, BY_ID_SINCE - 1)
        if by_id and not walk.ids:
            raise Unsupported("topics have no ids")
        self._versions = walk.versions(FetchRequest, first, last)
        self._walk, self._broker, self._isolation = walk, broker, isolation
        self.id, self.epoch = NO_SESSION, FIRST_EPOCH
        self._model = FetchSession[Read]()

    @property
    def reads(self) -> dict[Key, Read]:
        return self._model.reads

    def begin(self, reads: Sequence[Read]) -> None:
        """Open the session, instead of an earlier one; the reply contains each partition."""
        self._model.begin({read.key: read for read in reads})
        self.epoch = FIRST_EPOCH
        reply = self._send(reads)
        self.id = reply.session_id
        if self.id == NO_SESSION:
            raise Unsupported("the broker opens no fetch session")

    def fetch(self, changed: Sequence[Read] = (), forgotten: Sequence[Key] = ()) -> None:
        """Send the next request of the session, and compare which partitions the reply has, and with what.

        A session without partitions ends (FetchManager.newContext).
        """
        self._model.change({read.key: read for read in changed}, forgotten)
        reply = self._send(changed, forgotten)
        expect("session id", self.id if self.reads else NO_SESSION, reply.session_id)
        if not self.reads:
            self.refused(1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def refused(self, epoch: int, error: int, session_id: int | None = None) -> None:
        """Send a request with another epoch or session id, which is refused and changes nothing."""
        version = self._walk.random.choice(self._versions)
        what = self._walk.step(f"Fetch v{version} in session epoch {epoch} instead of {self.epoch}")
        wanted = self.id if session_id is None else session_id
        reply = self._broker.call(
            fetch_request(self._walk, (), version, session_id=wanted, session_epoch=epoch), version
        )
        compare(what, error_code=(error, reply.error_code), topics=((), reply.responses))

    def end(self) -> None:
        """End the session with a request that names all partitions; the reply contains each of them."""
        self._model.begin(self.reads)
        self.epoch = LAST_EPOCH
        reply = self._send(list(self.reads.values()))
        expect("session id of the last reply", NO_SESSION, reply.session_id)
        self.refused(1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _send(self, named: Sequence[Read], forgotten: Sequence[Key] = ()) -> Any:
        version = self._walk.random.choice(self._versions)
        what = self._walk.step(f"Fetch v{version} in session epoch {self.epoch}")
        request = fetch_request(
            self._walk, named, version, session_id=self.id, session_epoch=self.epoch, isolation_level=self._isolation,
            forgotten_topics_data=self._forgotten(forgotten),
        )  # fmt: skip
        reply = self._broker.call(request, version)
        self.epoch += 1
        compare(what, error_code=(0, reply.error_code))
        self._compare(what, results(self._walk, reply.responses, version, list(self.reads.values())), version)
        return reply

    def _forgotten(self, keys: Sequence[Key]) -> tuple[ForgottenTopic, ...]:
        names = dict.fromkeys(name for name, _ in keys)
        return tuple(
            ForgottenTopic(
                topic=name, partitions=tuple(index for other, index in keys if other == name),
                **self._walk.identity(name),
            )
            for name in names
        )  # fmt: skip

    def _compare(self, what: str, found: Sequence[tuple[Key, Any]], version: int) -> None:
        expect(f"{what}: each partition occurs once", len(found), len({key for key, _ in found}))
        beyond = [self._walk.show(key) for key, _ in found if key not in self.reads]
        expect(f"{what}: partitions outside of the session", [], beyond)
        room = Room(UNLIMITED)
        for key, part in found:
            if not part.records and not self._is_new(key, version):
                expect(f"{what}: a partition without changes is returned", "", self._walk.show(key))
            compare_read(self._walk, what, self.reads[key], part, version, self._isolation, room)
            self._model.report(key, None if part.error_code else self._walk.logs.get(key))
        for key in set(self.reads) - {key for key, _ in found}:
            missing = self._is_new(key, version) or self._has_records(key)
            expect(f"{what}: a partition with changes is missing", "", self._walk.show(key) if missing else "")

    def _is_new(self, key: Key, version: int) -> bool:
        """Whether a partition is returned even without records."""
        wanted, log = expected_read(self._walk, self.reads[key], version), self._walk.logs.get(key)
        return wanted.error != 0 or wanted.diverging[0] >= 0 or self._model.must_report(key, log)

    def _has_records(self, key: Key) -> bool:
        """Whether the limit of the partition leaves room for its first batch."""
        read, log = self.reads[key], self._walk.logs[key]
        available = log.from_offset(read.offset, log.limit(bool(self._isolation)))
        return bool(available) and len(available[0].raw or available[0].batch.encoded()) <= read.limit
