"""Invariants that are checked after every event of a simulation, on the node of that event and only where it changed.

Every invariant has the name of the TLA+ operator that states the same property; `violations.py` names the module.
"""
