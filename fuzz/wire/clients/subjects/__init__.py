"""Client programs to be fuzzed: each produces and consumes a few records and ends by itself within seconds.

Run with `highwater fuzz --client 'python -m highwater.fuzz.wire.clients.subjects.<name> {bootstrap}'`. Exit code 0 when
done, 1 when the client reported an error.
"""

TOPIC = "fuzz-client"
GROUP = "fuzz-client-group"
RECORDS = 3
PATIENCE_S = 6.0
