"""Consumer groups of KIP-848: the coordinator assigns the partitions, and each member follows by heartbeat.

A heartbeat goes through these modules from top to bottom:

| module | what is in it |
|---|---|
| `coordinator` | ConsumerGroupHeartbeat: members that join, return and leave |
| `classic_members` | JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol |
| `steps` | what both have in common: a member goes on, others are removed, timeouts, what is written |
| `conversion` | from a classic group with members to a consumer group, and back |
| `subscriptions` | topics of a member by name and by pattern, and a hash of them that shows when they change |
| `assignors` | `uniform` and `range`: from subscriptions to the target assignment |
| `reconciliation` | the next current assignment of one member, from its target and what it still owns |
| `group` | the state of group and members, and its invariants |
| `changes` | from state to records, and from records to state |
| `records` | the records, in the format of Apache Kafka |
| `checks` | what makes heartbeats, commits and fetches invalid |
| `describe` | ConsumerGroupDescribe, from the state that is committed |

Apache Kafka: GroupMetadataManager, ConsumerGroup.
"""
