"""Sequences of valid requests: programs of the suite with drawn choices, and requests that must be answered alike.

`run` one sequence by its seed, or several in parallel · `turns` when a session runs them · `relations` equivalent
requests, with `versions` for what neighbouring versions have in common · `violation` what a sequence has shown.
"""
