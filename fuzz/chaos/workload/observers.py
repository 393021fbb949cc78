"""Observes a group (state, members, committed offsets) through its coordinator, and the ISRs of a topic."""

import threading
from collections.abc import Callable
from typing import Any

from highwater.fuzz.chaos.workload.raw_client import RawClient, RawError
from highwater.fuzz.chaos.workload.readers import key_of
from highwater.fuzz.chaos.workload.recorder import Recorder
from highwater.fuzz.chaos.workload.topic import GROUP
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.committed_offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from highwater.reference.wire.messages.groups import DescribeGroupsRequest

DESCRIBE_VERSION, OFFSET_FETCH_VERSION = 4, 5
EVERY_S = 0.2


class GroupObserver:
    """Sends DescribeGroups, OffsetFetch and Metadata in turn, as one process of the history."""

    client = "raw"

    def __init__(self, bootstrap: str, topic: str, partitions: int, process: int, recorder: Recorder) -> None:
        self._client = RawClient(bootstrap, timeout_s=1.5)
        self._topic, self._partitions, self._process, self._recorder = topic, partitions, process, recorder

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(EVERY_S):
            self._observe("group", self._describe)
            self._observe("committed", self._committed)
            self._observe("in_sync", self._in_sync)
        self._client.close()

    def _observe(self, f: str, observe: Callable[[], Any]) -> None:
        self._recorder.record(self._process, "invoke", f, client=self.client)
        try:
            value = observe()
        except RawError as error:
            self._recorder.record(self._process, "fail", f, error=str(error), client=self.client)
        else:
            self._recorder.record(self._process, "ok", f, value=value, client=self.client)

    def _in_sync(self) -> dict[str, list[int]]:
        _, partitions = self._client.metadata(self._topic)
        return {key_of(self._topic, number): list(found.isr) for number, found in partitions.items()}

    def _describe(self) -> dict[str, Any]:
        coordinator = self._client.coordinator_address(GROUP)
        reply = self._client.ask(coordinator, DescribeGroupsRequest(groups=(GROUP,)), DESCRIBE_VERSION)
        (group,) = reply.groups
        _raise_for(group.error_code)
        return {"state": group.group_state, "members": sorted(member.member_id for member in group.members)}

    def _committed(self) -> dict[str, int]:
        coordinator = self._client.coordinator_address(GROUP)
        topics = (OffsetFetchRequestTopic(name=self._topic, partition_indexes=tuple(range(self._partitions))),)
        reply = self._client.ask(coordinator, OffsetFetchRequest(group_id=GROUP, topics=topics), OFFSET_FETCH_VERSION)
        _raise_for(reply.error_code)
        offsets: dict[str, int] = {}
        for topic in reply.topics:
            for partition in topic.partitions:
                _raise_for(partition.error_code)
                offsets[key_of(topic.name, partition.partition_index)] = partition.committed_offset
        return offsets


def _raise_for(code: int) -> None:
    if code != ErrorCode.NONE:
        raise RawError(ErrorCode(code).name, ErrorCode(code))
