"""`make bench`: the same client work against ebbline and Apache Kafka in one run, as ratios."""
