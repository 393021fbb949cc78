"""Faults on real processes: a Jepsen-style workload through real clients, a nemesis, one history."""
