"""Probes that send every field, list, filter, limit and version of a request, and compare each answer with a model.

Each module has the requests about one thing: `listings` (what lists contain), `parts` (requests with several parts,
each answered by itself), `limits` (the largest and smallest values), `settings`, `members`, `offsets`, `batches` and
`fetches` (what is stored and read), `producers` (transactions). They need neither faults nor a restart, except those of
`coordinators`, which check what is left of the fields after one.
"""
