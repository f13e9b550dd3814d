"""One partition on local disk, in the exact on-disk format of Apache Kafka 4.3.

Place in the flow: `replica/replica_manager` appends to and reads from `unified_log.UnifiedLog`;
`log_manager.LogManager` owns the logs of one broker. A log is a list of `segment.LogSegment`, each a `.log` file with
its offset, time and transaction index, plus the leader epochs (`leader_epochs`) and the producer state
(`producer_state`) of the whole partition. All calls come from the loop's thread unless a docstring says otherwise;
files are reached through `ports.disk`, time is an argument.
"""
