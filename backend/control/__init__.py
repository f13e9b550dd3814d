"""The control plane: observes a cluster, plans changes, makes them, proves them, takes them back.

Place in the flow: a Kafka client (``gateway``) like any other, so the embedded engine and Apache Kafka look the same.
``observer`` samples the cluster into the database that the dashboard reads; ``operations`` is the only way in which
anything changes a cluster; ``http`` is how people and the dashboard ask for both. ``plane`` wires them together.
"""
