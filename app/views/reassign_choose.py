"""What is to move: the controls of a new reassignment, and its dry run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

from app import state
from app.acting import control_api
from app.client import ApiError
from app.components import move_pictures
from app.components.page import Page
from app.person import Person
from app.state import View
from backend.store.queries import config, overview

KIND: Final = "reassign"
ACTIONS: Final = {
    "add": "Add a replica",
    "remove": "Remove replicas",
    "move": "Move replicas",
    "replication_factor": "Replication factor",
    "drain": "Drain brokers",
    "spread_leaders": "Spread leaders",
}

REVIEW: Final = "reassign_review"


@dataclass(frozen=True, slots=True)
class Review:
    """What a plan would be, or is. ``plan_id`` None: a dry run that nothing was stored of."""

    inputs: Mapping[str, Any]
    diff: Mapping[str, Any]
    checks: list[Any]
    cli: list[str]
    estimate: Mapping[str, Any]
    refused: bool
    at_ms: int
    plan_id: int | None = None


def choose(page: Page, view: View) -> dict[str, Any]:
    """The controls of the first two steps; the inputs as they stand."""
    brokers = [b.broker_id for b in state.read_cached(overview.brokers, page.cluster_id, version=view.version)]
    topics = [t.topic for t in state.read_cached(config.topics, page.cluster_id, version=view.version)]
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
            if action not in ("spread_leaders", "remove"):
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
                args=(page.person, inputs),
            )
    return inputs


LIMIT_HELP: Final = (
    "Each broker may send and take so many bytes a second for this move. It is removed when the plan ends, however."
)


def _topics_hint(action: str) -> str:
    return "All that are concerned" if action in ("drain", "spread_leaders") else "Choose topics"


def _selection(topic: str, numbers: str) -> dict[str, Any]:
    """A topic, or some of its partitions: ``0, 3-5``. What is no number makes the selection unusable."""
    if not numbers.strip():
        return {"topics": [topic]}
    found: list[int] = []
    for part in numbers.split(","):
        low, _, high = part.strip().partition("-")
        if not low.isdecimal() or (high and not high.isdecimal()) or int(high or low) - int(low) > 10_000:
            return {"partitions": []}
        found += range(int(low), int(high or low) + 1)
    return {"partitions": [{"topic": topic, "partition": number} for number in sorted(set(found))]}


def _target(action: str, brokers: list[int]) -> dict[str, Any]:
    if action in ("add", "remove", "drain"):
        names = {"add": "On brokers", "remove": "From brokers", "drain": "Brokers"}
        chosen = st.multiselect(names[action], brokers, key=f"brokers-{action}", placeholder="Brokers", width=170)
        return {"brokers": list(chosen)}
    if action == "move":
        source = st.selectbox("From broker", brokers, index=None, key="from", width=120)
        to = st.selectbox("To broker", brokers, index=None, key="to", width=120)
        return {"brokers": [b for b in (source, to) if b is not None]}
    if action == "replication_factor":
        factor = st.number_input(
            "Replicas", 1, max(1, len(brokers)), min(3, max(1, len(brokers))), key="factor", width=110
        )
        return {"factor": int(factor)}
    return {"elect": True}


def _problem(inputs: Mapping[str, Any]) -> str | None:
    """What is missing before a plan can be tried."""
    action = inputs["action"]
    if inputs.get("partitions") == []:
        return "Name partitions as numbers: 0, 3-5."
    if action not in ("drain", "spread_leaders") and not inputs.get("topics") and not inputs.get("partitions"):
        return "Choose topics."
    if action in ("add", "remove", "drain") and not inputs["brokers"]:
        return "Choose brokers."
    if action == "move" and len(inputs["brokers"]) != 2:
        return "Choose where from and where to."
    return None


def _dry_run(person: Person, inputs: dict[str, Any]) -> None:
    try:
        found = control_api(person).dry_run(KIND, inputs)
    except ApiError as error:
        st.session_state[REVIEW] = str(error)
        return
    st.session_state[REVIEW] = Review(
        inputs, found.diff, found.checks, found.cli, found.estimate or {}, found.refused, state.now_ms()
    )
