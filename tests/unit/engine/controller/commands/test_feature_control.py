"""UpdateFeatures: which levels may be finalized, in Kafka's words."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from backend.engine.controller.commands.feature_control import update_features
from backend.engine.controller.image.metadata_image import SupportedFeature
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.unit.engine.controller.clusters import Play

UPGRADE, SAFE, UNSAFE = 1, 2, 3


def play_with(*features: SupportedFeature) -> Play:
    play = Play()
    play.register(1)
    own = (*features, SupportedFeature("metadata.version", 7, 30))
    broker = replace(play.image.brokers[1], features=own)
    # As a cluster of an older version: no feature but metadata.version is finalized.
    levels = play.image.features.delete("group.version")
    play.image = replace(play.image, brokers=play.image.brokers.set(1, broker), features=levels)
    return play


def update(play: Play, *updates: tuple[str, int, int], validate_only: bool = False) -> tuple[int, str | None]:
    request = m.UpdateFeaturesRequest(
        feature_updates=[
            m.UpdateFeaturesRequest.FeatureUpdates(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    response = play.do(partial(update_features, request=request, config=play.config, version=2))
    return response.error_code, response.error_message


def test_a_level_that_all_nodes_support_is_finalized_and_taken_back() -> None:
    play = play_with(SupportedFeature("group.version", 0, 1))
    assert update(play, ("group.version", 1, UPGRADE)) == (0, None)
    assert play.image.features["group.version"] == 1
    assert update(play, ("group.version", 0, SAFE)) == (0, None)
    assert "group.version" not in play.image.features


def test_trying_an_update_changes_nothing() -> None:
    play = play_with(SupportedFeature("group.version", 0, 1))
    assert update(play, ("group.version", 1, UPGRADE), validate_only=True) == (0, None)
    assert "group.version" not in play.image.features


@pytest.mark.parametrize(
    ("feature_update", "words"),
    [
        (("group.version", 2, UPGRADE), "Broker 1 only supports versions 0-1"),
        (("share.version", 1, UPGRADE), "Broker 1 does not support this feature."),
        (("group.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("group.version", 1, SAFE), "Can't downgrade to a newer version."),
        (("group.version", 1, 9), "The controller does not support the given upgrade type."),
        (("metadata.version", 29, UPGRADE), "Can't downgrade the version of this feature without setting"),
        (("metadata.version", 29, UNSAFE), "Refusing to perform the requested downgrade"),
    ],
)
def test_other_levels_are_refused_in_kafkas_words_and_nothing_is_written(
    feature_update: tuple[str, int, int], words: str
) -> None:
    play = play_with(SupportedFeature("group.version", 0, 1), SupportedFeature("transaction.version", 0, 2))
    code, message = update(play, ("transaction.version", 2, UPGRADE), feature_update)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert message is not None
    assert words in message
    assert play.last == ()
