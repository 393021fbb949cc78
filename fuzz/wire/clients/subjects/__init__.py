"""Client programs to fuzz: each produces and consumes a few records and exits within seconds.

Run with `highwater fuzz --client 'python -m highwater.fuzz.wire.clients.subjects.<name> {bootstrap}'`. Exit code 0 on
success, 1 when the client reported an error.
"""

TOPIC = "fuzz-client"
GROUP = "fuzz-client-group"
RECORDS = 3
TIMEOUT_S = 6.0
