"""Models of what Kafka promises, one for each object of the protocol; none of them sends or waits.

- `batches`, `log`: a partition with its batches, leader epochs, producers and transactions
- `fetch_sessions`: which partitions a fetch session has, and which of them a reply must contain
- `groups`: the state, generation and members of a classic group, and the error of each request
- `offsets`: committed offsets, and the replies of OffsetCommit, OffsetFetch and OffsetDelete
- `transactions`: what a coordinator lists and describes of a transactional producer
- `topics`, `settings`: partitions, replicas and ids of topics; their settings with sources and changes
- `acls`, `quotas`: which entries a filter matches, and what a user may do
- `comparison`: whole replies against expected ones, field by field

A model is written from the protocol, not from a broker: KIP-98, KIP-227, KIP-345, KIP-394, KIP-496, KIP-546, and
Apache Kafka 4.3.1 where these leave something open. Where Kafka leaves a choice (how many bytes a Fetch returns, which
error of two that apply), a model permits each answer.
"""
