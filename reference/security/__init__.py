"""Authentication with SASL/PLAIN and SASL/SCRAM, without I/O; the drivers handle TLS (`drivers/security.py`)."""
