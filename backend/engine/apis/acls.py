"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), versions 1-3: there is no authorizer (KIP-140).

What `AclApis` answers without one: SECURITY_DISABLED, wherever the response has a place for it.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.context import BOTH, Api, RequestContext
from backend.engine.apis.services import Services
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."
CODE: Final = ErrorCode.SECURITY_DISABLED


def describe_acls(
    services: Services, context: RequestContext, request: m.DescribeAclsRequest
) -> m.DescribeAclsResponse:
    """One error for the whole question."""
    return m.DescribeAclsResponse(error_code=CODE, error_message="No Authorizer is configured on the broker")


def create_acls(services: Services, context: RequestContext, request: m.CreateAclsRequest) -> m.CreateAclsResponse:
    """One error for each binding."""
    result = m.CreateAclsResponse.Results
    return m.CreateAclsResponse(
        results=[result(error_code=CODE, error_message=NO_AUTHORIZER) for _ in request.creations]
    )


def delete_acls(services: Services, context: RequestContext, request: m.DeleteAclsRequest) -> m.DeleteAclsResponse:
    """One error for each filter."""
    result = m.DeleteAclsResponse.FilterResults
    return m.DeleteAclsResponse(
        filter_results=[result(error_code=CODE, error_message=NO_AUTHORIZER) for _ in request.filters]
    )


APIS: Final = (Api(29, 1, 3, describe_acls, BOTH), Api(30, 1, 3, create_acls, BOTH), Api(31, 1, 3, delete_acls, BOTH))
