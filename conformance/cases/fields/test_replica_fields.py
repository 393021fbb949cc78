"""Fields of requests about reassignments of partitions, elections of leaders, and folders of logs."""

from highwater.conformance.cases.fields.program import together

test_fields_of_a_reassignment = together("replicas.AlterPartitionReassignments")
test_fields_of_a_list_of_reassignments = together("replicas.ListPartitionReassignments")
test_fields_of_an_election = together("replicas.ElectLeaders")
test_fields_of_a_description_of_log_folders = together("replicas.DescribeLogDirs")
test_fields_of_a_move_to_another_log_folder = together("replicas.AlterReplicaLogDirs")
