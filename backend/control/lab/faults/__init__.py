"""Faults of the embedded cluster, injected on purpose and cleared.

`scenarios`: the faults in words. `fault_target`: what the process that runs the brokers must offer. `fault_scripts`:
how each fault is made. `fault_lab`: one fault at a time, cleared by a button, by itself or in time.
"""
