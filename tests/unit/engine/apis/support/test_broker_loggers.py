"""Log levels of a broker's process as configs (KIP-412)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.apis.admin_node import AdminNode, image_with, registered

LOGGER: Final = "backend.engine.apis.produce.produce_rows"
BROKER_LOGGER: Final = 8
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def node() -> Iterator[AdminNode]:
    before = logging.getLogger(LOGGER).level
    yield AdminNode(image_with(registered(1)))
    logging.getLogger(LOGGER).setLevel(before)


def alter(
    node: AdminNode, name: str, operation: int, value: str | None, *, broker: str = "1", validate_only: bool = False
) -> tuple[int, str | None]:
    resource = m.IncrementalAlterConfigsRequest.Resources
    change = resource.Configs(name=name, config_operation=operation, value=value)
    request = m.IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=BROKER_LOGGER, resource_name=broker, configs=[change])],
        validate_only=validate_only,
    )
    (answer,) = node.answer(request, 1).responses
    return answer.error_code, answer.error_message


def levels(node: AdminNode, broker: str = "1") -> tuple[int, dict[str, str]]:
    resource = m.DescribeConfigsRequest.Resources(resource_type=BROKER_LOGGER, resource_name=broker)
    (result,) = node.answer(m.DescribeConfigsRequest(resources=[resource]), 4).results
    return result.error_code, {config.name: config.value for config in result.configs}


def test_a_level_is_set_told_and_taken_back(node: AdminNode) -> None:
    assert alter(node, LOGGER, SET, "DEBUG") == (0, None)
    assert logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    assert levels(node)[1][LOGGER] == "DEBUG"
    assert "root" in levels(node)[1]
    assert alter(node, LOGGER, DELETE, None) == (0, None)
    assert logging.getLogger(LOGGER).level == logging.NOTSET
    assert node.channel.sent == []


def test_trying_a_level_changes_nothing(node: AdminNode) -> None:
    assert alter(node, LOGGER, SET, "ERROR", validate_only=True) == (0, None)
    assert logging.getLogger(LOGGER).level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "operation", "value", "code", "words"),
    [
        ("no.such.logger", SET, "INFO", ErrorCode.INVALID_CONFIG, "Logger no.such.logger does not exist!"),
        (LOGGER, SET, "LOUD", ErrorCode.INVALID_CONFIG, f"Cannot set the log level of {LOGGER} to LOUD as it is not"),
        (LOGGER, SET, None, ErrorCode.INVALID_REQUEST, "Null value not supported for"),
        (LOGGER, APPEND, "INFO", ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER"),
        ("root", DELETE, None, ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed"),
    ],
)
def test_what_is_no_logger_or_level_is_refused_in_kafkas_words(
    node: AdminNode, name: str, operation: int, value: str | None, code: ErrorCode, words: str
) -> None:
    error_code, message = alter(node, name, operation, value)
    assert error_code == code
    assert message is not None
    assert message.startswith(words)


def test_a_broker_tells_and_changes_its_own_levels_only(node: AdminNode) -> None:
    assert levels(node, "2") == (ErrorCode.INVALID_REQUEST, {})
    assert alter(node, LOGGER, SET, "DEBUG", broker="2")[0] == ErrorCode.INVALID_REQUEST
    assert logging.getLogger(LOGGER).level == logging.NOTSET
