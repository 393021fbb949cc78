"""Clients without I/O for the simulator: like the broker, they receive events and return effects."""
