"""Example histories, and client programs for `highwater chaos --clients`; `highwater examples DIR` copies them."""
