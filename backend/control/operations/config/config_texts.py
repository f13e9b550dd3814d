"""The words of a change of settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from backend.control.formatting import in_bytes
from backend.control.operations.config.topic_config_rules import COPY_OFF, deletes_remote
from backend.control.operations.lifecycle.plan_draft import DialogTexts, JsonObject

ConfigValues = Mapping[str, str | None]


def dialog_texts(cluster_name: str, object_: str, settings: ConfigValues, remote_bytes: int | None) -> DialogTexts:
    """The dialog's texts; those of tiering are the design's."""
    where = f"Cluster {cluster_name}."
    if deletes_remote(settings):
        size = "all its" if remote_bytes is None else f"{in_bytes(remote_bytes)} of"
        return DialogTexts(
            title=f"Turn off tiering on {object_}",
            intro=where,
            effect=f"Deletes {size} remote data; records that are only there become unreadable.",
            risk="This cannot be reverted.",
            keep="Keep tiering",
            act="Turn off and delete",
        )
    if settings.get(COPY_OFF) == "true":
        return DialogTexts(
            title=f"Pause copying on {object_}",
            intro=where,
            effect="New segments stay local. While paused, local retention follows total retention.",
            does_not_change="What is in the remote tier stays readable.",
            keep="Keep copying",
            act="Pause copying",
        )
    if COPY_OFF in settings:
        return DialogTexts(
            title=f"Resume copying on {object_}",
            intro=where,
            effect="Segments are copied again from where copying stopped; the backlog goes at the copy limit.",
            keep="Keep paused",
            act="Resume copying",
        )
    names = ", ".join(settings)
    return DialogTexts(
        title=f"Change {len(settings)} setting{'' if len(settings) == 1 else 's'} of {object_}",
        intro=where,
        effect=f"{names}: in effect at once, without a restart.",
        keep="Keep",
        act="Change",
    )


def lines(settings: ConfigValues, snapshot: JsonObject) -> list[str]:
    """The difference in lines."""
    result = []
    for name, value in settings.items():
        before = snapshot["set"][name]
        effective = snapshot["seen"]["effective"].get(name)
        now = before if before is not None else f"not set here (in effect {effective})" if effective else "not set"
        result += [f"− {name} = {now}", f"+ {name} = {'not set here' if value is None else value}"]
    return result
