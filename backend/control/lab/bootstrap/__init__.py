"""The bootstrap race: how fast a new replica joins with KIP-1023's flag off, and on.

`race_plan`: sizes of the topic. `race_steps`: builds the topic, adds the replica, watches it. `race_run`: values of a
run and its progress. `bootstrap_lab`: one run at a time, and cleaning up after it.
"""
