"""The wire fuzzer: requests generated from the message table, and mutated at the fields that the table describes.

`generate` valid and mutated requests · `oracles` expectations · `engine` connections · `session` the loop ·
`sequences` stateful tests · `triage` from failures to findings · `replay` findings.
"""
