"""The steps of consumers of 0.7 that the store sees, by the paths of the nodes that change (`spec/zk_rebalance`).

Such a consumer decides nothing with others except by these nodes, so the store's order of changes is the order of the
group's steps. Only a traced store calls this.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

from highwater.reference.context import from_json
from highwater.reference.effects import STORE, Trace

Change = Literal["written", "deleted"]
CONSUMER: Final = re.compile(r"/consumers/(?P<group>[^/]+)/ids/(?P<consumer>[^/]+)")
OWNER: Final = re.compile(r"/consumers/(?P<group>[^/]+)/owners/(?P<topic>[^/]+)/(?P<broker>\d+)-(?P<number>\d+)")
OFFSET: Final = re.compile(r"/consumers/(?P<group>[^/]+)/offsets/(?P<topic>[^/]+)/(?P<broker>\d+)-(?P<number>\d+)")
PARTITIONS: Final = re.compile(r"/brokers/topics/(?P<topic>[^/]+)/(?P<broker>\d+)")


def steps_of_change(change: Change, path: str, data: bytes, ephemerals: Iterable[str]) -> Iterator[Trace]:
    """Yield the steps that a request to write or delete one node performs; `ephemerals` are its session's nodes."""
    written = change == "written"
    if (found := CONSUMER.fullmatch(path)) and written:
        yield _step(found, "Register", found["consumer"])
    elif found := OWNER.fullmatch(path):
        yield _step(found, "Claim" if written else "Release", data.decode(), partition=_partition(found))
    elif (found := OFFSET.fullmatch(path)) and written:
        for own in filter(None, map(CONSUMER.fullmatch, ephemerals)):
            yield _step(found, "Commit", own["consumer"], partition=_partition(found))
    elif found := PARTITIONS.fullmatch(path):
        for number in range(int(from_json(data))):
            name = f"{found['topic']}/{found['broker']}-{number}"
            yield Trace("", "AddPartition" if written else "RemovePartition", STORE, {"partition": name})


def steps_of_expiry(ephemerals: Iterable[str]) -> Iterator[Trace]:
    """Yield the step of each consumer whose session ends; its owner nodes disappear in the same step."""
    for found in filter(None, map(CONSUMER.fullmatch, sorted(ephemerals))):
        yield _step(found, "SessionExpire", found["consumer"])


def _step(found: re.Match[str], action: str, consumer: str, **choices: Any) -> Trace:
    return Trace(found["group"], action, STORE, {"consumer": consumer, **choices})


def _partition(found: re.Match[str]) -> str:
    return f"{found['topic']}/{found['broker']}-{found['number']}"
