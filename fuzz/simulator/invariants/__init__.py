"""What must hold after every event of a simulation. Each look is at the node that just moved, and at what is new.

Every invariant bears the name of the TLA+ operator that says the same, and names its module.
"""
