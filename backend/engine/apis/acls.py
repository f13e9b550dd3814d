"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), versions 1-3: there is no authorizer (KIP-140).

Every response has SECURITY_DISABLED where it has a place for an error, as `AclApis` without an authorizer.
Kafka: `AclApis.handleDescribeAcls`, `handleCreateAcls`, `handleDeleteAcls`.
"""

from __future__ import annotations

from typing import Final

from backend.engine.apis.api_declaration import BOTH, Api, RequestContext
from backend.engine.ports.time_slices import Steps
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode

NO_AUTHORIZER: Final = "No Authorizer is configured."
CODE: Final = ErrorCode.SECURITY_DISABLED


def describe_acls(services: object, context: RequestContext, request: m.DescribeAclsRequest) -> m.DescribeAclsResponse:
    """One error for the whole question."""
    return m.DescribeAclsResponse(error_code=CODE, error_message="No Authorizer is configured on the broker")


def create_acls(services: object, context: RequestContext, request: m.CreateAclsRequest) -> Steps[m.CreateAclsResponse]:
    """One error for each binding."""
    result = m.CreateAclsResponse.Results
    response = m.CreateAclsResponse()
    for _ in request.creations:
        response.results.append(result(error_code=CODE, error_message=NO_AUTHORIZER))
        yield
    return response


def delete_acls(services: object, context: RequestContext, request: m.DeleteAclsRequest) -> Steps[m.DeleteAclsResponse]:
    """One error for each filter."""
    result = m.DeleteAclsResponse.FilterResults
    response = m.DeleteAclsResponse()
    for _ in request.filters:
        response.filter_results.append(result(error_code=CODE, error_message=NO_AUTHORIZER))
        yield
    return response


APIS: Final = (Api(29, 1, 3, describe_acls, BOTH), Api(30, 1, 3, create_acls, BOTH), Api(31, 1, 3, delete_acls, BOTH))
