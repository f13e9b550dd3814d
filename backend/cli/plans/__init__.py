"""Commands that change a cluster: plan, look, confirm, execute.

``plan_commands`` makes a plan, ``execution_commands`` carries it out, ``toggle`` does both for one setting; ``confirm``
has what they share.
"""
