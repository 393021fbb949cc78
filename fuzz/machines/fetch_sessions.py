"""Compare incremental fetches of a session (KIP-227) with full fetches."""

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from highwater.reference.tests.test_fetch_sessions import PARTITIONS, Cluster, parts_of
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.records import batch_headers


class FetchingMachine(RuleBasedStateMachine):
    """`reported` is the state of each partition from all incremental responses; it must equal a full response."""

    @initialize()
    def start(self) -> None:
        self.cluster = Cluster()
        self.offsets: dict[int, int] = {}
        self.reported: dict[int, tuple[int, int]] = {}
        reply = self.cluster.fetch({}, epoch=0)
        self.session, self.epoch = reply.session_id, 1

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def write(self, partition: int) -> None:
        self.cluster.write(partition)

    @rule(
        change=st.dictionaries(st.integers(0, PARTITIONS - 1), st.integers(0, 3), max_size=2),
        forget=st.sets(st.integers(0, PARTITIONS - 1), max_size=1),
    )
    def fetch(self, change: dict[int, int], forget: set[int]) -> None:
        forget = forget - set(change)
        reply = self.cluster.fetch(change, session=self.session, epoch=self.epoch, forget=tuple(forget))
        assert reply.error_code == ErrorCode.NONE
        self.epoch += 1
        self.offsets = {key: offset for key, offset in {**self.offsets, **change}.items() if key not in forget}
        self.reported = {key: known for key, known in self.reported.items() if key in self.offsets}
        full = parts_of(self.cluster.fetch(self.offsets))
        incremental = parts_of(reply)
        if incremental:
            event("partial response" if len(incremental) < len(self.offsets) else "full response")
        for partition, data in incremental.items():
            self.reported[partition] = (data.error_code, data.high_watermark)
        for partition, data in full.items():
            assert self.reported[partition] == (data.error_code, data.high_watermark)
            assert bool(data.records) == bool(partition in incremental and incremental[partition].records)
        assert set(self.reported) == set(self.offsets)
        assert bool(reply.session_id) == bool(self.offsets)
        if not self.offsets:  # a session without partitions ends
            self.session, self.epoch = self.cluster.fetch({}, epoch=0).session_id, 1

    @invariant()
    def every_record_is_fetched(self) -> None:
        for partition, offset in self.offsets.items() if hasattr(self, "offsets") else ():
            data = parts_of(self.cluster.fetch({partition: offset}))[partition]
            assert sum(1 for _ in batch_headers(data.records or b"")) == max(data.high_watermark - offset, 0)
