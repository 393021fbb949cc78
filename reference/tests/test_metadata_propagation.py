"""What brokers learn from the controller when a leader has changed a partition's state at the same time."""

import pytest

from highwater.reference.controller.epoch import Term
from highwater.reference.tests.simulated import Simulated
from highwater.reference.wire.messages.metadata import DescribeClusterRequest, MetadataRequest, MetadataRequestTopic


def isr(cluster: Simulated, broker_id: int) -> set[int]:
    body = MetadataRequest(topics=(MetadataRequestTopic(name="t"),))
    return set(cluster.ask(body, 9, broker_id).topics[0].partitions[0].isr_nodes)


def test_an_isr_change_that_a_conflict_reveals_reaches_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader removes a dead follower before the controller does, whose write then fails.

    The controller reads the state again and has nothing left to change. The event about the leader's write may come
    later, and then it brings nothing new.
    """

    async def comes_late(term: Term, name: str) -> None:
        pass

    cluster = Simulated(3, metadata_store_session_timeout_ms=2_000, replica_lag_time_max_ms=400, isr_update="zookeeper")
    cluster.create("t")
    leader = cluster.leader("t")
    controller = next(each for each in cluster.broker_ids if cluster.broker(each).controller.active)
    stopped = next(each for each in cluster.broker_ids if each not in {leader, controller})
    monkeypatch.setattr(Term, "_state_changed", comes_late)
    cluster.world.crash(f"broker:{stopped}")
    cluster.produce("t", [b"the stopped follower lacks it"])
    cluster.run(3_000)
    remaining = set(cluster.broker_ids) - {stopped}
    assert {each: isr(cluster, each) for each in remaining} == dict.fromkeys(remaining, remaining)


@pytest.mark.parametrize("kind", [MetadataRequest(topics=()), DescribeClusterRequest()])
def test_a_started_broker_names_no_broker_before_it_knows_them(kind: MetadataRequest | DescribeClusterRequest) -> None:
    """librdkafka keeps to the answer that there are no brokers and no controller."""
    cluster = Simulated(1)
    cluster.world.crash("store")
    cluster.world.crash("broker:1")
    cluster.world.start("broker:1")
    version = 9 if isinstance(kind, MetadataRequest) else 0
    asked = cluster.send(kind, version)
    cluster.run(4_000)
    assert asked not in cluster.hand.answers
    cluster.world.start("store")
    assert [each.broker_id if version == 0 else each.node_id for each in cluster.answer(asked).brokers] == [1]


def test_a_broker_without_its_store_answers_in_the_end() -> None:
    cluster = Simulated(1)
    cluster.world.crash("store")
    cluster.world.crash("broker:1")
    cluster.world.start("broker:1")
    assert cluster.ask(MetadataRequest(topics=()), 9).brokers == ()
