"""Probes: short programs of a client that use the options of an API and compare each answer with a model.

`client` has what a probe is made of, `table` starts the probes of a run. The other modules have the probes, each with
the clauses that it checks: `records`, `fetch`, `trimming`, `topics`, `groups`, `offsets`, `transactions`; `restarts`
has those that check that what was answered before a restart is still true, `alone` and `failovers` those that request
faults of their own.

A probe knows the protocol, never the broker's code. It calls `Session.expect` for what a correct cluster without faults
answers; a failed expectation counts only if no fault was active shortly before or during the probe. It calls
`Session.require` for what holds under every fault.
"""
