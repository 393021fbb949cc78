"""The client of the suite: connections that log every frame, a cluster with its topics and nodes, and drawn choices."""
