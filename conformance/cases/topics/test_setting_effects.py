"""Settings of a topic take effect at the leaders of all its partitions, whichever broker was asked to change them."""

from collections.abc import Callable
from functools import partial

import pytest

from highwater.conformance.cases.support.admin import change_configs, config, create_error, new_topic
from highwater.conformance.clause import clause
from highwater.conformance.client.broker import EARLIEST, LATEST, NOW_MS, Broker, Topic, batch, records_of
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, Request, defect
from highwater.conformance.expectations import expect
from highwater.conformance.failures import Unsupported
from highwater.conformance.models.settings import DELETE, SET
from highwater.reference.wire.errors import ErrorCode
from highwater.reference.wire.messages.configs import IncrementalAlterConfigsRequest
from highwater.reference.wire.messages.offsets import ListOffsetsRequest
from highwater.reference.wire.messages.produce import ProduceRequest

OFFSET = "topics.partitions.offset"
LONGEST_INTERVAL_MS, EMPTIED_S = 5_000, 30.0
LARGEST, TIMES = "max.message.bytes", "message.timestamp.type"


def _error(cluster: Cluster, part: Topic, data: bytes) -> int:
    with cluster.leader(part) as leader:
        return leader.produce(part, data).error_code


def led_by_each_broker(cluster: Cluster) -> list[Topic]:
    """Return the partitions of a topic, each with one record and led by another broker."""
    cluster.connect().version_of(IncrementalAlterConfigsRequest)
    name, nodes = cluster.topic_name(), sorted(cluster.target.addresses)
    expect("error code", 0, create_error(cluster, new_topic(name, -1, -1, assignment=[[node] for node in nodes])))
    parts = [cluster.topic(name, partition=number) for number in range(len(nodes))]
    for part in parts:
        cluster.eventually("the partition to be led", partial(_is_led, cluster, part))
    return parts


def _is_led(cluster: Cluster, part: Topic) -> bool:
    return _error(cluster, part, batch(b"v")) == 0


def _has_not(has_effect: Callable[[Topic], bool], part: Topic) -> bool:
    return not has_effect(part)


def _has_append_time(cluster: Cluster, part: Topic) -> bool:
    with cluster.leader(part) as leader:
        answer = leader.produce(part, batch(b"v", timestamp_ms=NOW_MS))
        expect("error code of Produce", 0, answer.error_code)
        return records_of(leader.fetch(part, answer.base_offset).records)[0].timestamp != NOW_MS


@clause("ADM-49")
@defect(
    Request(IncrementalAlterConfigsRequest, "validate_only", True),
    Reply(ProduceRequest, "responses.partition_responses.error_code", 0),
)
def test_a_changed_setting_takes_effect_at_every_leader(cluster: Cluster) -> None:
    """One broker is asked to set, and another one to delete."""
    nodes, parts = sorted(cluster.target.addresses), led_by_each_broker(cluster)
    name = parts[0].name
    large = batch(b"x" * 2_000)
    effects: dict[tuple[str, str], Callable[[Topic], bool]] = {
        (LARGEST, "1000"): lambda part: _error(cluster, part, large) == ErrorCode.MESSAGE_TOO_LARGE,
        (TIMES, "LogAppendTime"): partial(_has_append_time, cluster),
    }
    for number, ((key, value), has_effect) in enumerate(effects.items()):
        asked, other = (cluster.target.addresses[nodes[(number + step) % len(nodes)]] for step in range(2))
        if config(cluster.connect(asked), name, key).value == value:
            continue  # the broker's default has this effect already
        for part in parts:
            expect(f"the effect of {key} at broker {part.leader_id} before", False, has_effect(part))
        _change(cluster.connect(asked), name, (key, SET, value))
        for part in parts:
            cluster.eventually(f"the effect of {key}={value} at broker {part.leader_id}", partial(has_effect, part))
        _change(cluster.connect(other), name, (key, DELETE, None))
        for part in parts:
            cluster.eventually(
                f"the end of the effect of {key} at broker {part.leader_id}",
                partial(_has_not, has_effect, part),
            )


def _change(broker: Broker, name: str, change: tuple[str, int, str | None]) -> None:
    with broker:
        expect(f"error code of {change}", 0, change_configs(broker, name, change))


@clause("ADM-49", "retention")
@pytest.mark.slow
@defect(Request(IncrementalAlterConfigsRequest, "validate_only", True), Reply(ListOffsetsRequest, OFFSET, 0))
def test_a_changed_retention_takes_effect_at_every_leader(cluster: Cluster) -> None:
    """The records are years old; a broker that only reads the settings of its logs at its start would keep them."""
    if cluster.setting("log_retention_check_interval_ms") > LONGEST_INTERVAL_MS:
        raise Unsupported("the target's log.retention.check.interval.ms is above 5 s")
    parts = led_by_each_broker(cluster)
    for node, part in zip(sorted(cluster.target.addresses), parts, strict=True):
        expect(f"the log of broker {node} is empty before", False, _is_emptied(cluster, part))
    _change(cluster.connect(), parts[0].name, ("retention.ms", SET, "1000"))
    for part in parts:
        cluster.eventually(f"an empty log at broker {part.leader_id}", partial(_is_emptied, cluster, part), EMPTIED_S)


def _is_emptied(cluster: Cluster, part: Topic) -> bool:
    with cluster.leader(part) as leader:
        return leader.list_offset(part, EARLIEST).offset == leader.list_offset(part, LATEST).offset
