"""A snapshot stands for the log before it: from any point of any life, snapshot and rest give the whole log's image."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.engine.controller.image.metadata_image import EMPTY_IMAGE, MetadataImage
from backend.engine.controller.image.replay import apply_records
from backend.engine.controller.image.snapshot_images import image_of_snapshot, snapshot_batches, snapshot_id_of
from backend.protocol import messages as m
from backend.protocol.errors import KafkaError
from backend.protocol.messages import Message
from tests.effort import effort
from tests.properties.controller.test_commands_and_replay import BROKERS, play_step, steps
from tests.unit.engine.controller.clusters import CLUSTER_ID, Play

users = st.sampled_from(("ann", "bob"))
extras = st.one_of(
    st.builds(
        lambda user, kind, key, value, remove: m.ClientQuotaRecord(
            entity=[m.ClientQuotaRecord.Entity(entity_type=kind, entity_name=user)], key=key, value=value, remove=remove
        ),
        st.one_of(st.none(), users),
        st.sampled_from(("user", "client-id")),
        st.sampled_from(("producer_byte_rate", "consumer_byte_rate")),
        st.floats(1, 1e9),
        st.booleans(),
    ),
    st.builds(
        lambda user, mechanism, salt, rounds: m.UserScramCredentialRecord(
            name=user, mechanism=mechanism, salt=salt, stored_key=salt, server_key=salt, iterations=rounds
        ),
        users,
        st.integers(1, 2),
        st.binary(min_size=1, max_size=8),
        st.integers(4096, 9999),
    ),
    st.builds(
        lambda name, level: m.FeatureLevelRecord(name=name, feature_level=level),
        st.sampled_from(("a.version", "z.version", "metadata.version")),
        st.integers(0, 3),
    ),
    st.builds(
        lambda node: m.RegisterControllerRecord(
            controller_id=node,
            incarnation_id=bytes(15) + bytes([node]),
            end_points=[m.RegisterControllerRecord.EndPoints(name="C", host="h", port=node, security_protocol=0)],
        ),
        st.integers(1, 3),
    ),
)


def bytes_of(image: MetadataImage) -> bytes:
    return b"".join(snapshot_batches(image, last_contained_ms=3, now_ms=4))


def through_a_snapshot(image: MetadataImage) -> MetadataImage:
    return image_of_snapshot(bytes_of(image), snapshot_id_of(image), CLUSTER_ID)[0]


@settings(max_examples=effort(40, 5_000, check=10), deadline=None)
@given(
    st.lists(st.one_of(st.tuples(st.just("extra"), extras), steps), max_size=30),
    st.lists(st.integers(0, 60), max_size=4, unique=True),
)
def test_snapshot_and_rest_equal_the_whole_log_byte_for_byte(
    life: list[tuple[object, ...]], snapshots_after: list[int]
) -> None:
    play = Play().start_brokers(*BROKERS)
    groups: list[tuple[Message, ...]] = [tuple(play.records)]
    for step in life:
        if step[0] == "extra":
            assert isinstance(step[1], Message)
            record = step[1]
            play.image = apply_records(play.image, [record], play.image.offset + 1, 1)
            groups.append((record,))
            continue
        play.last = ()
        try:
            play_step(play, step)
        except KafkaError:
            continue
        if play.last:
            groups.append(tuple(play.last))
    image = replace(EMPTY_IMAGE, cluster_id=CLUSTER_ID)
    for number, group in enumerate(groups):
        image = apply_records(image, group, image.offset + len(group), 1)
        if number in snapshots_after:
            image = through_a_snapshot(image)
    assert image == play.image
    assert bytes_of(image) == bytes_of(play.image) == bytes_of(through_a_snapshot(image))


def test_the_property_sees_what_a_snapshot_leaves_out() -> None:
    play = Play().start_brokers(1, 2)
    play.create("a", [[1, 2]])
    poorer = replace(play.image, next_producer_id=play.image.next_producer_id + 1000)
    assert bytes_of(poorer) != bytes_of(play.image)
    assert through_a_snapshot(poorer) != play.image
