"""The simulation driver: runs the same nodes in virtual time, on disks that can lose unflushed data.

All events are in one heap, so two runs with the same seed are identical. Random choices come from streams keyed by
(seed, purpose, count), so removing one fault changes no other choice.
"""
