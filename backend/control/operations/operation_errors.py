"""Why an operation was not done. Each says in one sentence what happened and what to do; `http` gives it a status."""

from __future__ import annotations


class OperationError(Exception):
    """Nothing was changed."""

    status = 400
    slug = "bad-request"


class InvalidInput(OperationError):
    """The request is not one that can be planned."""

    status = 422
    slug = "invalid-input"


class NotFound(OperationError):
    """There is no such thing."""

    status = 404
    slug = "not-found"


class NotAllowed(OperationError):
    """The role does not allow it."""

    status = 403
    slug = "not-allowed"


class NotConfirmed(OperationError):
    """The cluster name was not typed as it is, or the reason is missing."""

    status = 422
    slug = "not-confirmed"


class Conflict(OperationError):
    """The plan is not in a state that allows it, or the key was used for another plan."""

    status = 409
    slug = "conflict"


class StalePlan(Conflict):
    """The cluster has changed since the plan was made."""

    slug = "stale-plan"


class PlanChanged(OperationError):
    """The plan is not any more what the caller has seen."""

    status = 412
    slug = "plan-changed"


class ReadOnly(NotAllowed):
    """This ebbline was started to look at the cluster, not to change it."""

    slug = "read-only"


class ClusterAway(OperationError):
    """The cluster, or the database, does not answer; nothing was changed."""

    status = 503
    slug = "unavailable"
