"""SCRAM credentials in the metadata: what Kafka 4.3.1 answers to changes, and what it then describes."""

from __future__ import annotations

from functools import partial

import pytest

from backend.engine.controller.commands.scram_control import alter_user_scram_credentials
from backend.engine.controller.image.replay import ReplayError, apply_records
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from backend.protocol.scram import credential
from tests.unit.engine.apis.admin_node import AdminNode
from tests.unit.engine.controller.clusters import Play

Request = m.AlterUserScramCredentialsRequest
SALTED = b"p" * 32
DUPLICATE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
MISSING = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
DONE = (ErrorCode.NONE, None)


def up(name: str, mechanism: int = 1, iterations: int = 4096) -> Request.Upsertions:
    return Request.Upsertions(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=SALTED
    )


def down(name: str, mechanism: int = 1) -> Request.Deletions:
    return Request.Deletions(name=name, mechanism=mechanism)


def alter(play: Play, *changes: Request.Upsertions | Request.Deletions) -> dict[str, tuple[int, str | None]]:
    request = Request(
        deletions=[change for change in changes if isinstance(change, Request.Deletions)],
        upsertions=[change for change in changes if isinstance(change, Request.Upsertions)],
    )
    response = play.do(partial(alter_user_scram_credentials, request=request))
    return {result.user: (result.error_code, result.error_message) for result in response.results}


def test_a_credential_is_made_replaced_and_deleted() -> None:
    play = Play()
    assert alter(play, up("alice"), up("bob", 2, 8192)) == {"alice": DONE, "bob": DONE}
    assert play.image.scram_credential("SCRAM-SHA-256", "alice") == credential("SCRAM-SHA-256", SALTED, b"salt", 4096)
    assert play.image.scram_credential("SCRAM-SHA-512", "bob") == credential("SCRAM-SHA-512", SALTED, b"salt", 8192)
    assert play.image.scram_credential("SCRAM-SHA-512", "alice") is None
    assert alter(play, up("alice", 1, 5000)) == {"alice": DONE}
    assert alter(play, down("alice")) == {"alice": DONE}
    assert play.image.scram_credential("SCRAM-SHA-256", "alice") is None
    assert alter(play, down("alice")) == {"alice": MISSING}


def test_the_salted_password_itself_is_never_written() -> None:
    play = Play()
    alter(play, up("alice"))
    [record] = play.last
    assert SALTED not in (getattr(record, "stored_key", b""), getattr(record, "server_key", b""))


def test_every_user_is_judged_alone() -> None:
    changes: list[Request.Upsertions | Request.Deletions] = [
        down("zed"),
        down("alice", 9),
        down(""),
        up("bob"),
        up("few", 1, 10),
        up("many", 1, 20_000),
        up(""),
    ]
    assert alter(Play(), *changes, up("m", 0), up("m3", 3)) == {
        "zed": MISSING,
        "alice": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        "bob": DONE,
        "few": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        "many": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        "m": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        "m3": (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    }


@pytest.mark.parametrize(
    "changes",
    [
        [up("bob"), up("bob")],
        [up("bob"), up("bob", 2)],
        [up("bob"), up("bob", 2, 10)],
        [down("bob"), up("bob", 2)],
    ],
)
def test_a_user_named_twice_gets_no_change_at_all(changes: list[Request.Upsertions | Request.Deletions]) -> None:
    play = Play()
    alter(play, up("bob"))
    assert alter(play, *changes) == {"bob": DUPLICATE}
    assert play.last == ()


def test_the_first_error_of_a_user_stays() -> None:
    few = (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    assert alter(Play(), up("b2", 1, 1), up("b2")) == {"b2": few}
    assert alter(Play(), down("new"), up("new")) == {"new": MISSING}


def test_a_removal_of_what_is_not_there_cannot_be_replayed() -> None:
    with pytest.raises(ReplayError, match="SCRAM credential of nobody"):
        apply_records(Play().image, [m.RemoveUserScramCredentialRecord(name="nobody", mechanism=1)], 9, 1)


def describe(play: Play, *users: str) -> dict[str, tuple[int, str | None, list[tuple[int, int]]]]:
    ask = m.DescribeUserScramCredentialsRequest
    response = AdminNode(play.image).answer(ask(users=[ask.Users(name=name) for name in users]), 0)
    assert response.error_code == 0
    return {
        result.user: (
            result.error_code,
            result.error_message,
            [(info.mechanism, info.iterations) for info in result.credential_infos],
        )
        for result in response.results
    }


def test_credentials_are_described_by_mechanism_and_iterations() -> None:
    play = Play()
    alter(play, up("alice"), up("bob", 2, 8192))
    alter(play, up("alice", 2))
    everybody = {"alice": (0, "", [(1, 4096), (2, 4096)]), "bob": (0, "", [(2, 8192)])}
    assert describe(play) == everybody
    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: bob"
    missing = "Attempt to describe a user credential that does not exist: nobody"
    assert describe(play, "bob", "bob", "alice", "nobody") == {
        "bob": (ErrorCode.DUPLICATE_RESOURCE, twice, []),
        "alice": everybody["alice"],
        "nobody": (ErrorCode.RESOURCE_NOT_FOUND, missing, []),
    }


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acl_requests_are_told_that_there_is_no_authorizer(version: int) -> None:
    node = AdminNode(Play().image)
    refusal = (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
    described = node.answer(m.DescribeAclsRequest(), version)
    assert (described.error_code, described.error_message) == (refusal[0], "No Authorizer is configured on the broker")
    made = node.answer(m.CreateAclsRequest(creations=[m.CreateAclsRequest.Creations()] * 2), version)
    assert [(result.error_code, result.error_message) for result in made.results] == [refusal, refusal]
    gone = node.answer(m.DeleteAclsRequest(filters=[m.DeleteAclsRequest.Filters()]), version)
    assert [(filter_result.error_code, filter_result.error_message) for filter_result in gone.filter_results] == [
        refusal
    ]
