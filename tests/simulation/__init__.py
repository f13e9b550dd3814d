"""The engine unchanged on a virtual clock, network, disk and object store, with faults from one seed.

`world` is the place: machines that can crash, the network between them, their disks and the object store. `faults` and
`workload` say what happens there, `checkers` what must hold all the while, `run` plays one seed from start to end.
``python -m tests.simulation SEED`` replays one and prints what happened.
"""
