"""The wire fuzzer: requests generated from the message table, mutated where the table says that it hurts.

`generators` sound requests · `mutators` unsound frames · `oracles` what a broker must still do ·
`session` the loop · `replay` one small file for each finding.
"""
