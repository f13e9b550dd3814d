"""The life of a plan, whatever it changes.

`plan_draft`: the values a plan consists of. `plan_states`: the states and their legal order. `planner`: makes a plan.
`plan_store`: reads and writes stored plans. `plan_claim`: one execution takes the plan. `plan_execution`: carries it
out and verifies it. `long_running`: carries out a plan that takes hours. `execution_control`: pause, resume, stop,
limit. `plan_journal`: stores each step.
"""
