"""Clients without I/O, for the simulator: nodes like the broker, events in and effects out."""
