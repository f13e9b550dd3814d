"""The only way in which anything changes a cluster: plan → checks → confirm → execute → verify → revert.

`operation_kind`: what one kind of change must know; `registry`: all kinds by name. `service` offers them to the API.
`lifecycle`: how a plan is made, stored, confirmed, carried out and verified, whatever its kind. The kinds: `config`
(settings, the bootstrap toggle), `reassign` (replicas, throttles, preferred leaders), `record_deletion`.
`audit_entries`: one row for each attempt, refusals included. `operation_errors`: why nothing was done.
"""
