"""One conversation per client with a fresh cluster of three brokers, as text, to compare with Apache Kafka's.

A session calls everything that its client offers, with good and bad input. What a cluster chooses freely (ids, times,
ports) is replaced by a word. Recorded against Apache Kafka 4.3.1::

    python -m tests.interop.sessions BOOTSTRAP > tests/fixtures/apache-kafka-4.3.1/client-sessions.json
"""
