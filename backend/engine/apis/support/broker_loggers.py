"""The log levels of a broker's process as configs of the resource BROKER_LOGGER (KIP-412).

Loggers are Python's, by module, `root` above all; brokers that share a process share them. A level is set until the
process ends. Rules and words of ConfigAdminManager and LoggingController.
"""

from __future__ import annotations

import logging
from typing import Final

from backend.engine.controller.commands.config.configuration_control import APPEND, DELETE, SET, SUBTRACT, operations
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode, KafkaError

BROKER_LOGGER_RESOURCE: Final = 8
# DescribeConfigs' source of a logger's level.
LOGGER_SOURCE: Final = 6
ROOT: Final = "root"
# Only the product's own loggers are listed: those of libraries depend on what the process has imported.
OWN: Final = "backend"
# LogLevelConfig's names by Python's levels.
LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": logging.DEBUG,
    "WARN": logging.WARNING,
}
_NAMES: Final = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}

_Config = m.DescribeConfigsResponse.Results.Configs
_Change = m.IncrementalAlterConfigsRequest.Resources.Configs


def describe_loggers(name: str, node_id: int) -> list[_Config]:
    """Every logger with the level in force. KafkaError for another broker's."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(node_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {name}")
    own = sorted(
        logger_name for logger_name in list(logging.root.manager.loggerDict) if logger_name.partition(".")[0] == OWN
    )
    return [_entry(ROOT, logging.root), *(_entry(logger_name, logging.getLogger(logger_name)) for logger_name in own)]


def _entry(name: str, logger: logging.Logger) -> _Config:
    level = _NAMES.get(logger.getEffectiveLevel(), "FATAL")
    return _Config(name=name, value=level, config_source=LOGGER_SOURCE, documentation=None)


def alter_loggers(name: str, node_id: int, changes: list[_Change], *, validate_only: bool) -> None:
    """All changes or none. KafkaError for another broker's, for a logger or a level that there is not."""
    if not name.isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {node_id}, but received {name}")
    operations(changes)
    for change in changes:
        _check(change)
    if validate_only:
        return
    for change in changes:
        logger = logging.root if change.name == ROOT else logging.getLogger(change.name)
        level = logging.NOTSET if change.config_operation == DELETE else LEVELS[change.value or ""]
        logger.setLevel(level)


def _check(change: _Change) -> None:
    name = change.name
    if change.config_operation in (APPEND, SUBTRACT):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{'APPEND' if change.config_operation == APPEND else 'SUBTRACT'} operation is not allowed for the"
            " BROKER_LOGGER resource",
        )
    if change.config_operation not in (SET, DELETE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.config_operation} for {name}")
    if name != ROOT and name not in logging.root.manager.loggerDict:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if change.config_operation == SET and change.value not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {change.value} as it is not a supported log level. Valid log levels"
            f" are {', '.join(LEVELS)}",
        )
    if change.config_operation == DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed")
