"""Classes of every message of Kafka 4.3: requests, responses and the records of internal topics.

`from backend.protocol import messages as m`, then `m.FetchRequest`, `m.FetchRequest.Topics.Partitions`. A class is
built from the message table when its name is first used; the stub beside this file describes them all to type
checkers.
"""

from functools import cache

from backend.protocol.messages.base import Message, Struct
from backend.protocol.messages.build import build
from backend.protocol.messages.schema import by_key, names, schema

__all__ = ["Message", "Struct", "message_class", "record_class", "request_class", "response_class"]


def __getattr__(name: str) -> type[Message]:
    if name.startswith("_") or name not in names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = build(schema(name), __name__)
    globals()[name] = made
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *names()})


def message_class(name: str) -> type[Message]:
    """The class of a message by its name; KeyError when Kafka 4.3 has none of that name."""
    cls = globals().get(name)
    if isinstance(cls, type) and issubclass(cls, Message):
        return cls
    if name not in names():
        raise KeyError(name)
    return __getattr__(name)


@cache
def request_class(api_key: int) -> type[Message]:
    """The request of an API key; KeyError for a key Kafka 4.3 does not have."""
    return message_class(by_key("clients", "request")[api_key])


@cache
def response_class(api_key: int) -> type[Message]:
    """The response of an API key; KeyError for a key Kafka 4.3 does not have."""
    return message_class(by_key("clients", "response")[api_key])


@cache
def record_class(group: str, key: int) -> type[Message]:
    """The record of a type id, of the groups `metadata-records` and `remote-log-metadata`; KeyError when unknown."""
    return message_class(by_key(group, "record")[key])
