"""The file formats, as typed schemas, that the packages exchange.

`history` client operations and faults · `trace` protocol steps for TLC · `schedule` faults to inject ·
`verdict` outcomes and exit codes · `run` the results folder.  All text files are UTF-8 NDJSON or JSON.
"""
