"""A proxy between clients and brokers that injects faults into single messages of the protocol."""
