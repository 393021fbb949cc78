"""The suites by name: their versions, and which of their tests are left out and why."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from highwater.soak.client_suites import clusters
from highwater.soak.client_suites.go_tests import GoSuite
from highwater.soak.client_suites.librdkafka import LibrdkafkaSuite
from highwater.soak.client_suites.results import Results


class Suite(Protocol):
    """The tests of a client library."""

    @property
    def version(self) -> str: ...
    @property
    def excluded(self) -> Mapping[str, str]: ...
    def run(self, log: Path) -> Results: ...


NO_AUTHORIZER: Final = "the broker has no authorizer, and answers SECURITY_DISABLED as Apache Kafka does without one"
NO_QUOTAS: Final = "the broker has no client quotas"
NO_SCRAM_REQUESTS: Final = "users come from the configuration; the broker has no requests that alter them"
UNEVEN: Final = "each of two members must read 12 of 24 records, 8 in each of 3 partitions: one of them has 8 or 16"
MOCK_BROKER: Final = "librdkafka's mock broker answers it"
NIL_CONNECT: Final = "the test calls a function of a ConsumerGroup that it did not set, and ends the program"
ADMIN_REQUESTS: Final = (
    "unclean_destroy", "CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeConfigs",
    "DeleteRecords", "ListConsumerGroups", "DescribeConsumerGroups", "DescribeTopics", "DescribeCluster",
    "DeleteGroups", "DeleteConsumerGroupOffsets", "ListOffsets", "AlterConsumerGroupOffsets",
    "ListConsumerGroupOffsets",
)  # fmt: skip
"""The sub-tests of librdkafka's 0081 but those of ACLs and UserScramCredentials, and two that alter a broker's setting
for Kerberos, which this broker refuses."""
FRANZ_GO: Final = {"KGO_TEST_RF": "3", "KGO_TEST_RECORDS": "20000", "KGO_LOG_LEVEL": "none"}
GROUP: Final = "^TestReaderConsumerGroup$/"
SUITES: Final[dict[str, Suite]] = {
    "franz-go": GoSuite(
        "github.com/twmb/franz-go", "v1.22.2", clusters.franz_go, packages=("./pkg/kgo",), environment=FRANZ_GO
    ),
    "franz-go-transactions": GoSuite(
        "github.com/twmb/franz-go", "v1.22.2", clusters.franz_go, packages=("./pkg/kgo",), tests="TestTxnEtl",
        environment=FRANZ_GO,
    ),
    "kafka-go": GoSuite(
        "github.com/segmentio/kafka-go", "v0.4.51", clusters.kafka_go, packages=(".", "./sasl", "./topics"),
        environment={"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"},  # as in its own CI
        excluded={
            "^TestClient(Create|Delete|Describe)ACLs$": NO_AUTHORIZER,
            "^TestClientAlterClientQuotas$": NO_QUOTAS,
            "^Test(Alter|Describe)UserScramCredentials$": NO_SCRAM_REQUESTS,
            f"{GROUP}^verify_offset_committed": NIL_CONNECT,
            f"{GROUP}^consumer_group_commits_on_close$": NIL_CONNECT,
            "^TestWriter$/SASL": "it deletes at port 9092 what it created at port 9093; a broker has a single listener",
            f"{GROUP}^consumer_group_rebalance$": UNEVEN,
        },
    ),
    "sarama": GoSuite(
        "github.com/IBM/sarama", "v1.61.1", clusters.sarama, tags="functional",
        tests="^(TestFunc|TestConsumer(HighWaterMark|PartialBatch|FetchFollower|GroupDeadlock)|TestVersionMatrix"
        "|TestReadOnlyAndAll|TestInterceptors$|TestAsyncProducerRemoteBrokerClosed$)",
        environment={"KAFKA_VERSION": "4.0.0"},
        excluded={
            "^TestFuncAdminQuotas$": NO_QUOTAS,
            "^TestFuncAdminUpdateFeatures$": "the broker has no request UpdateFeatures: its features are fixed",
            "^TestFuncIdempotentBufferedSequence$": "it looks for the name of a Java exception in the broker's log",
        },
    ),
    "librdkafka": LibrdkafkaSuite(
        "4.10.0+2.12.1",
        excluded={
            **dict.fromkeys(("0109", "0115", "0119"), NO_AUTHORIZER),
            **dict.fromkeys(("0139", "0150"), MOCK_BROKER),
            "0055": "it limits latencies in milliseconds: 63 ms were measured beside other work where 51 are allowed",
        },
        subtests={"0081": ADMIN_REQUESTS},
        alone=("0049", "0068", "0075", "0076", "0088", "0094"),
    ),
}  # fmt: skip
