"""The metadata quorum: its leader and dedicated controllers that die."""

from __future__ import annotations

from typing import Final

from tests.incidents.catalogue.brokers import LOSES, away
from tests.incidents.expectations import CRITICAL, WARNING, Expected, Incident, RigForm, Where
from tests.incidents.steps import breaks, mends

DEDICATED: Final = RigForm(controllers=3)
COMBINED: Final = "each node of `ebbline up` is a broker and a voter; its voters are played by quorum-leader-killed"

INCIDENTS: Final = (
    Incident(
        name="quorum-leader-killed",
        title="The leader of the metadata quorum is killed, a broker as well",
        steps=(breaks("kill_quorum_leader"), mends("start_all")),
        expected=(away("{quorum}", WARNING),),
    ),
    Incident(
        name="controller-killed",
        title="One of three dedicated controllers is killed",
        steps=(breaks("kill_controller", nodes=(5,)), mends("start_all")),
        expected=(
            Expected(
                slug="voter-away",
                objects=("voter 5|controller 5|node 5",),
                severity=WARNING,
                says=("5", "2 of 3"),
                action=("start|restart",),
                never=LOSES,
            ),
        ),
        on=frozenset({Where.KAFKA}),
        why_not={Where.EMBEDDED: COMBINED},
        form=DEDICATED,
    ),
    Incident(
        name="controllers-lost",
        title="Two of three dedicated controllers are killed: nothing can be changed",
        steps=(breaks("kill_controller", nodes=(4, 5)), mends("start_all")),
        expected=(
            Expected(
                slug="voter-away",
                objects=("quorum|cluster|voter 4, 5|voters 4, 5",),
                severity=CRITICAL,
                says=("majority", "1 of 3"),
                action=("start|restart",),
                never=(*LOSES, "recover"),
            ),
        ),
        on=frozenset({Where.KAFKA}),
        why_not={Where.EMBEDDED: COMBINED},
        form=DEDICATED,
    ),
)
