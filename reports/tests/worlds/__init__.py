"""Compare the auditor with an exhaustive search on small drawn histories: `python -m highwater.reports.tests.worlds`.

`drawn` simulates clients of a right cluster, `changes` changes a history at one place, and `oracle` decides whether a
right cluster can have produced a history. The oracle was written from Kafka's guarantees and the input format
(docs/audit/events.md), without the auditor's rules: where the two differ, one of them is wrong.
"""
