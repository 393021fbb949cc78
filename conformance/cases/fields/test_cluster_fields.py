"""Fields of DeleteTopics, Metadata, DescribeTopicPartitions, DescribeCluster and DescribeQuorum."""

from highwater.conformance.cases.fields.program import together

test_fields_of_a_deletion_of_topics = together("cluster.DeleteTopics")
test_fields_of_a_request_for_metadata = together("cluster.Metadata")
test_fields_of_a_request_for_pages_of_partitions = together("cluster.DescribeTopicPartitions")
test_fields_of_a_description_of_the_cluster = together("cluster.DescribeCluster")
test_fields_of_a_description_of_the_quorum = together("cluster.DescribeQuorum")
