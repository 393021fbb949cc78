"""Fields of requests of members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and ConsumerGroupHeartbeat."""

from highwater.conformance.cases.fields.program import together

test_fields_of_the_join_of_a_new_member = together("members.JoinGroup")
test_fields_of_a_join_of_a_stable_group = together("members.JoinGroup of a stable group")
test_fields_of_a_request_for_an_assignment = together("members.SyncGroup")
test_fields_of_a_heartbeat = together("members.Heartbeat")
test_fields_of_a_request_to_leave = together("members.LeaveGroup")
test_fields_of_the_first_heartbeat_of_a_consumer = together("members.ConsumerGroupHeartbeat of a new group")
test_fields_of_a_heartbeat_of_a_consumer = together("members.ConsumerGroupHeartbeat")
