"""The blocking Kafka client that tools, the suite, the fuzzer and fault tests share.

`connection` one connection: frames, requests, deadlines · `access` TLS and SASL settings · `cluster` connections to the
brokers of one cluster, each request in a version that both sides support.
"""
