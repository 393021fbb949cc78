"""The simulation driver: the same nodes in virtual time, on disks that can lose what was not flushed.

One heap of events decides everything: two runs of the same seed are the same run.  Random choices come from
streams keyed by (seed, what for, how often), so that removing one fault changes no other choice.
"""
