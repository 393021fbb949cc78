"""Run client libraries' own test suites on clusters of the reference broker: `python -m highwater.soak.client_suites`.

- `__main__`: the command
- `suites`: the table of suites: versions, what is left out and why
- `go_tests`: compile and run the tests of a Go module; `clusters`: the brokers that they expect
- `toxiproxy`: the proxies before the brokers of Sarama's tests, and their `docker`
- `librdkafka`: compile and run librdkafka's tests
- `results`: what passed, failed and was skipped
"""
