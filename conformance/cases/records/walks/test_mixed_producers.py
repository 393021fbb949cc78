"""Several idempotent producers whose batches continue, repeat and skip sequence numbers, compared with a model."""

from highwater.conformance.cases.support.log_walks.choices import plain_batch
from highwater.conformance.cases.support.log_walks.reads import describe_producers, read_everything
from highwater.conformance.cases.support.log_walks.senders import Sender
from highwater.conformance.cases.support.log_walks.walk import APPEND_TIME, Walk
from highwater.conformance.cases.support.log_walks.writes import Deletion, Write, delete, produce
from highwater.conformance.clause import clause, era
from highwater.conformance.client.cluster import Cluster
from highwater.conformance.defects import Reply, defect, increment
from highwater.reference.wire.compression import Compression
from highwater.reference.wire.messages.offsets import DeleteRecordsRequest
from highwater.reference.wire.messages.produce import ProduceRequest


@clause("IDM-10", "mixed")
@era("2.5")  # older releases require unknown producers to begin at 0
@defect(
    Reply(ProduceRequest, "responses.partition_responses.error_code", 0),
    Reply(ProduceRequest, "responses.partition_responses.base_offset", increment),
)
def test_each_batch_of_several_producers_is_stored_once_or_refused(cluster: Cluster) -> None:
    walk = Walk(cluster, 6, {}, APPEND_TIME)
    senders = [Sender.create(walk) for _ in range(3)]
    for number in walk.steps(60):
        writes = list[Write]()
        for key in walk.keys:
            if walk.random.random() < 0.1:
                writes.append(Write(key, plain_batch(walk, (Compression.NONE,))))
            elif walk.random.random() < 0.85:
                writes.append(walk.random.choice(senders).write(key))
        produce(walk, writes)
        for sender in senders:
            sender.learn_epochs()
        if number in (25, 45) and walk.supports(DeleteRecordsRequest):
            delete(walk, [Deletion(key, -1) for key in walk.keys if walk.random.random() < 0.5])
        if number % 20 == 19:
            read_everything(walk, isolations=(number // 20 % 2,))
            describe_producers(walk)
