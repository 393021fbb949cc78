"""Fields of requests, one table a request; `rows/` has the tables, by the first word of their names."""

from highwater.conformance.cases.fields.program import one_by_one, together, twice

test_fields_of_a_deletion_of_topics = together("cluster.DeleteTopics")
test_fields_of_a_request_for_metadata = together("cluster.Metadata")
test_fields_of_a_request_for_pages_of_partitions = together("cluster.DescribeTopicPartitions")
test_fields_of_a_description_of_the_cluster = together("cluster.DescribeCluster")
test_fields_of_a_description_of_the_quorum = together("cluster.DescribeQuorum")

test_fields_of_a_description_of_settings = one_by_one("configs.DescribeConfigs")
test_fields_of_a_change_of_settings = one_by_one("configs.IncrementalAlterConfigs")
test_a_changed_resource_that_is_given_twice_is_refused_alone = twice("configs.IncrementalAlterConfigs", since="3.9")
test_fields_of_settings_that_replace_all = one_by_one("configs.AlterConfigs")

test_fields_of_a_change_of_quotas = together("entities.AlterClientQuotas")
test_fields_of_a_description_of_quotas = together("entities.DescribeClientQuotas")
test_fields_of_a_change_of_users = together("entities.AlterUserScramCredentials")
test_fields_of_a_description_of_users = together("entities.DescribeUserScramCredentials")
test_fields_of_new_entries_of_access_control_lists = together("entities.CreateAcls")
test_fields_of_a_filter_of_access_control_lists = together("entities.DescribeAcls")
test_fields_of_a_deletion_from_access_control_lists = together("entities.DeleteAcls")

test_fields_of_the_join_of_a_new_member = together("members.JoinGroup")
test_fields_of_a_join_of_a_stable_group = together("members.JoinGroup of a stable group")
test_fields_of_a_request_for_an_assignment = together("members.SyncGroup")
test_fields_of_a_heartbeat = together("members.Heartbeat")
test_fields_of_a_request_to_leave = together("members.LeaveGroup")
test_fields_of_the_first_heartbeat_of_a_consumer = together("members.ConsumerGroupHeartbeat of a new group")
test_fields_of_a_heartbeat_of_a_consumer = together("members.ConsumerGroupHeartbeat")

test_fields_of_a_search_for_offsets = together("records.ListOffsets")
test_fields_of_a_search_for_the_end_of_an_epoch = together("records.OffsetForLeaderEpoch")
test_fields_of_a_deletion_of_records = together("records.DeleteRecords")
test_fields_of_a_fetch = together("records.Fetch")
test_fields_of_a_produce = together("records.Produce")

test_fields_of_a_reassignment = together("replicas.AlterPartitionReassignments")
test_fields_of_a_list_of_reassignments = together("replicas.ListPartitionReassignments")
test_fields_of_an_election = together("replicas.ElectLeaders")
test_fields_of_a_description_of_log_folders = together("replicas.DescribeLogDirs")
test_fields_of_a_move_to_another_log_folder = together("replicas.AlterReplicaLogDirs")

test_fields_of_a_new_topic = one_by_one("topics.CreateTopics")
test_a_new_topic_that_is_given_twice_is_refused_alone = twice("topics.CreateTopics")
test_fields_of_more_partitions = one_by_one("topics.CreatePartitions")
test_an_extended_topic_that_is_given_twice_is_refused_alone = twice("topics.CreatePartitions")

test_fields_of_a_request_for_a_producer_id = together("transactions.InitProducerId")
test_fields_of_an_addition_of_offsets = together("transactions.AddOffsetsToTxn")
test_fields_of_the_end_of_a_transaction = together("transactions.EndTxn")
test_fields_of_a_list_of_transactions = together("transactions.ListTransactions")
test_fields_of_a_description_of_transactions = together("transactions.DescribeTransactions")
test_fields_of_a_search_for_transaction_coordinators = together("transactions.FindCoordinator")

test_fields_of_an_addition_of_partitions = together("transaction_partitions.AddPartitionsToTxn")
test_fields_of_an_addition_to_several_transactions = together("transaction_partitions.AddPartitionsToTxn in batches")
test_fields_of_a_commit_in_a_transaction = together("transaction_partitions.TxnOffsetCommit")
test_fields_of_a_description_of_producers = together("transaction_partitions.DescribeProducers")
test_fields_of_markers = together("transaction_partitions.WriteTxnMarkers")
