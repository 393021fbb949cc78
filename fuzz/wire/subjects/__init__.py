"""Clients to be fuzzed: each produces and consumes a little, and ends by itself within seconds.

`highwater fuzz --client 'python -m fuzz.wire.subjects.<name> {bootstrap}'`; exit code 0 for done, 1 for an error told.
"""

TOPIC = "fuzz-client"
GROUP = "fuzz-client-group"
RECORDS = 3
PATIENCE_S = 6.0
