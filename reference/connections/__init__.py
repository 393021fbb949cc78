"""The connections of a broker's clients, without I/O.

`server.py` is one connection: bytes and times go in, requests and bytes come out. `limits.py` has the limits that the
connections of one broker share. The asyncio driver (`drivers/connection.py`) and the simulated world
(`drivers/simulation/clients.py`) carry bytes to and from the same objects.
"""
