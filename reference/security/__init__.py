"""Who may talk to a broker: SASL/PLAIN and SCRAM, without I/O. TLS is the drivers' (`drivers/tls.py`)."""
