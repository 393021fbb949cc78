"""The wire fuzzer: requests generated from the message table, and mutated at the fields that the table describes.

`generate` valid and mutated requests · `oracles` expectations · `engine` connections · `session` the loop ·
`examination` from failures to findings · `replay` findings. Requests in several steps are `fuzz/explore`'s.
"""
