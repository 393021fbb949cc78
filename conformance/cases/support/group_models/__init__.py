"""Models of what Kafka promises about groups and administration, for walks that compare every field with them.

- `comparison`: expected and actual replies, field by field, and the versions that a walk uses
- `classic`: the state, generation and members of a classic group, and the error of each request
- `members`: clients of a classic group whose replies are compared with that model
- `offsets`: committed offsets, and the replies of OffsetCommit, OffsetFetch and OffsetDelete
- `offset_walk`: requests about offsets whose replies are compared with these models
- `settings`: settings of topics with their sources, and what each change makes of them
- `topics`: partitions, replicas and ids of topics as they are described

They follow the protocol: KIP-98, KIP-345, KIP-394, KIP-496, KIP-546, KIP-848, and Apache Kafka 4.3.1 where these leave
the error codes open.
"""
