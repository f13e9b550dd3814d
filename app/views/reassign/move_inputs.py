"""The controls that choose the replicas of a new reassignment, and its dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from app import observed, state
from app.access.identity import User
from app.components.plan import move_pictures
from app.components.shared import markup
from app.components.shared.page import Page
from app.control.api_client import ControlApiError
from app.control.user_api import control_api
from app.state import ClusterView
from backend.store.queries import config
from backend.store.queries.config import TopicRow

KIND: Final = "reassign"
ACTIONS: Final = {
    "add": "Add a replica",
    "remove": "Remove replicas",
    "move": "Move replicas",
    "replication_factor": "Replication factor",
    "drain": "Drain brokers",
    "spread_leaders": "Spread leaders",
    "swap_leaders": "Swap leaders",
}

# These look at every partition unless topics are chosen.
WITHOUT_TOPICS: Final = ("drain", "spread_leaders", "swap_leaders")
# These copy nothing, so they need no limit.
WITHOUT_COPIES: Final = ("spread_leaders", "swap_leaders", "remove")
TAKES_BROKERS: Final = ("add", "remove", "drain")
REVIEW: Final = "reassign_review"
_TOPOLOGY: Final = "reassign_topology"
# The brokers, and of each chosen topic its id and how many partitions it has.
Topology = tuple[tuple[int, ...], Mapping[str, tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class Review:
    """A plan as it would be, or is. ``plan_id`` None: a dry run that nothing was stored of."""

    inputs: Mapping[str, Any]
    diff: Mapping[str, Any]
    checks: list[Any]
    cli: list[str]
    estimate: Mapping[str, Any]
    refused: bool
    at_ms: int
    plan_id: int | None = None


def choose(page: Page, view: ClusterView) -> dict[str, Any]:
    """The controls of the first two steps; the inputs as they stand."""
    brokers = [b.broker_id for b in observed.brokers(view)]
    listed = state.read_cached(config.topics, page.cluster_id, version=view.version)
    topics = [topic.topic for topic in listed]
    if change := _changed_meanwhile(brokers, listed):
        st.html(markup.alert("warning", "The cluster has changed.", change))
    with st.container(key="card-choose"):
        review = st.session_state.get(REVIEW)
        st.html(move_pictures.steps_html(3 if isinstance(review, Review) else 1))
        with st.container(horizontal=True, key="choose", vertical_alignment="bottom"):
            action = st.selectbox("What", list(ACTIONS), format_func=ACTIONS.__getitem__, key="action", width=180)
            inputs: dict[str, Any] = {"action": action}
            chosen = st.multiselect(
                "Topics", topics, key="topics", placeholder=_topics_hint(str(action)), width=300, max_selections=50
            )
            if len(chosen) == 1:
                numbers = st.text_input("Partitions", key="partitions", placeholder="all, or 0, 3-5", width=110)
                inputs |= _selection(chosen[0], numbers or "")
            elif chosen:
                inputs["topics"] = list(chosen)
            inputs |= _target(str(action), brokers)
            if action not in WITHOUT_COPIES:
                limit = st.number_input(
                    "Limit, MB/s", 0.001, 100_000.0, 10.0, step=10.0, key="limit", width=130, help=LIMIT_HELP
                )
                inputs["throttle_bytes_per_s"] = round(float(limit) * 1_000_000)
            problem = _problem(inputs)
            st.button(
                "Review",
                key="review",
                type="primary",
                disabled=problem is not None or not view.own,
                help=problem or "What the plan would be; nothing is stored or changed",
                on_click=_dry_run,
                args=(page.user, inputs),
            )
    return inputs


def _changed_meanwhile(brokers: Sequence[int], topics: Sequence[TopicRow]) -> str | None:
    """Takes the selection away when what was chosen from is no longer so, and says why; before its controls."""
    chosen = set(st.session_state.get("topics") or ())
    now = {topic.topic: (topic.topic_id, topic.partition_count) for topic in topics if topic.topic in chosen}
    before = st.session_state.get(_TOPOLOGY)
    st.session_state[_TOPOLOGY] = (tuple(brokers), now)
    if before is None or not (chosen or REVIEW in st.session_state):
        return None
    change = topology_change(before, (tuple(brokers), now))
    if change is None:
        return None
    for name in ("topics", "partitions", "from", "to", REVIEW, *(f"brokers-{action}" for action in TAKES_BROKERS)):
        st.session_state.pop(name, None)
    st.session_state[_TOPOLOGY] = (tuple(brokers), {})
    return f"{change} The selection was taken away: choose again."


def topology_change(before: Topology, now: Topology) -> str | None:
    """The change of brokers or partitions since the choice began; None: none that matters to it. Pure."""
    gone, come = sorted(set(before[0]) - set(now[0])), sorted(set(now[0]) - set(before[0]))
    if gone or come:
        parts = [
            f"broker {', '.join(map(str, ids))} {verb}" for ids, verb in ((gone, "is gone"), (come, "came")) if ids
        ]
        return f"{' and '.join(parts).capitalize()}."
    other = sorted(name for name, was in before[1].items() if now[1].get(name, was) != was)
    return f"{', '.join(other)[:200]} has other partitions than when it was chosen." if other else None


def clone(inputs: Mapping[str, Any]) -> None:
    """Puts what a plan was asked as into the controls, as the beginning of another one. A callback."""
    action = str(inputs.get("action"))
    brokers = list(inputs.get("brokers") or ())
    parts = list(inputs.get("partitions") or ())
    st.session_state["action"] = action
    st.session_state["topics"] = sorted({*(inputs.get("topics") or ()), *(part["topic"] for part in parts)})
    st.session_state["partitions"] = ", ".join(str(part["partition"]) for part in parts)
    if action in TAKES_BROKERS:
        st.session_state[f"brokers-{action}"] = brokers
    elif action in ("move", "swap_leaders"):
        st.session_state["from"], st.session_state["to"] = brokers
    elif action == "replication_factor":
        st.session_state["factor"] = inputs.get("factor")
    limit = inputs.get("throttle_bytes_per_s")
    if limit:
        st.session_state["limit"] = limit / 1_000_000
    st.session_state.pop(REVIEW, None)
    st.session_state.pop(_TOPOLOGY, None)
    st.query_params.pop("plan", None)


def no_clone(inputs: Mapping[str, Any]) -> str | None:
    """Why a plan cannot be asked for again with these controls; None: it can."""
    topics = {part["topic"] for part in inputs.get("partitions") or ()}
    if inputs.get("action") not in ACTIONS:
        return "It was made of exact lists, as a revert is: open it instead."
    return "It names partitions of several topics: open it instead." if len(topics) > 1 else None


LIMIT_HELP: Final = (
    "Each broker may send and take so many bytes a second for this move. It is removed when the plan ends, however."
)


def _topics_hint(action: str) -> str:
    return "All that are concerned" if action in WITHOUT_TOPICS else "Choose topics"


def _selection(topic: str, numbers: str) -> dict[str, Any]:
    """A topic, or some of its partitions: ``0, 3-5``. Anything but numbers makes the selection unusable."""
    if not numbers.strip():
        return {"topics": [topic]}
    partitions: list[int] = []
    for part in numbers.split(","):
        low, _, high = part.strip().partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) - int(low) > 10_000:
            return {"partitions": []}
        partitions += range(int(low), int(high or low) + 1)
    return {"partitions": [{"topic": topic, "partition": number} for number in sorted(set(partitions))]}


def _target(action: str, brokers: list[int]) -> dict[str, Any]:
    if action in TAKES_BROKERS:
        names = {"add": "On brokers", "remove": "From brokers", "drain": "Brokers"}
        chosen = st.multiselect(names[action], brokers, key=f"brokers-{action}", placeholder="Brokers", width=170)
        return {"brokers": list(chosen)}
    if action in ("move", "swap_leaders"):
        first, second = ("From broker", "To broker") if action == "move" else ("Broker", "And broker")
        source = st.selectbox(first, brokers, index=None, key="from", width=120)
        to = st.selectbox(second, brokers, index=None, key="to", width=120)
        pair = {"brokers": [b for b in (source, to) if b is not None]}
        return pair if action == "move" else {**pair, "elect": True}
    if action == "replication_factor":
        factor = st.number_input(
            "Replicas", 1, max(1, len(brokers)), min(3, max(1, len(brokers))), key="factor", width=110
        )
        return {"factor": int(factor)}
    return {"elect": True}


def _problem(inputs: Mapping[str, Any]) -> str | None:
    """The input that is missing before a dry run; None: none is."""
    action = inputs["action"]
    if inputs.get("partitions") == []:
        return "Name partitions as numbers: 0, 3-5."
    if action not in WITHOUT_TOPICS and not inputs.get("topics") and not inputs.get("partitions"):
        return "Choose topics."
    if action in TAKES_BROKERS and not inputs["brokers"]:
        return "Choose brokers."
    if action in ("move", "swap_leaders") and len(set(inputs["brokers"])) != 2:
        return "Choose where from and where to." if action == "move" else "Choose two brokers."
    return None


def _dry_run(user: User, inputs: dict[str, Any]) -> None:
    try:
        dry_run = control_api(user).dry_run(KIND, inputs)
    except ControlApiError as error:
        st.session_state[REVIEW] = str(error)
        return
    st.session_state[REVIEW] = Review(
        inputs, dry_run.diff, dry_run.checks, dry_run.cli, dry_run.estimate or {}, dry_run.refused, state.now_ms()
    )
