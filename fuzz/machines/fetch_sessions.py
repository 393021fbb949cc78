"""Fetch sessions (KIP-227): a fetcher with a session beside one without."""

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from highwater.reference.tests.test_fetch_sessions import PARTITIONS, Cluster, parts_of
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.records import batch_headers


class FetchingMachine(RuleBasedStateMachine):
    """A fetcher with a session beside one without: what the first adds up is what the second is told."""

    @initialize()
    def start(self) -> None:
        self.cluster = Cluster()
        self.offsets: dict[int, int] = {}
        self.told: dict[int, tuple[int, int]] = {}
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
        self.told = {key: known for key, known in self.told.items() if key in self.offsets}
        whole = parts_of(self.cluster.fetch(self.offsets))
        heard = parts_of(reply)
        if heard:
            event("partial news" if len(heard) < len(self.offsets) else "news of all")
        for partition, data in heard.items():
            self.told[partition] = (data.error_code, data.high_watermark)
        for partition, data in whole.items():
            assert self.told[partition] == (data.error_code, data.high_watermark)
            assert bool(data.records) == bool(partition in heard and heard[partition].records)
        assert set(self.told) == set(self.offsets)

    @invariant()
    def records_are_whole(self) -> None:
        for partition, offset in self.offsets.items() if hasattr(self, "offsets") else ():
            data = parts_of(self.cluster.fetch({partition: offset}))[partition]
            assert sum(1 for _ in batch_headers(data.records or b"")) == max(data.high_watermark - offset, 0)
