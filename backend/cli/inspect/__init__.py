"""Commands that show and change nothing.

``cluster_commands``: the cluster and its partitions. ``finding_commands``: what needs attention, and the audit.
``set_aside``: unused replica folders that brokers keep.
"""
