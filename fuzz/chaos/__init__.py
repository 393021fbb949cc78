"""Chaos: the schedules of the simulator on clusters of real processes, the reference's and Apache Kafka's."""
