"""The faults that the lab can inject and has injected, as text. Pure: the API's answer → HTML and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.components.shared import format as fmt
from app.components.shared import markup

Json = Mapping[str, Any]
STATES: Final = {
    "breaking": ("warning", "Being broken"),
    "broken": ("warning", "Broken"),
    "healing": ("notice", "Healing"),
    "healed": ("ok", "Healed"),
    "failed": ("critical", "Failed"),
}
RUNNING: Final = ("breaking", "broken", "healing")


def scenario_html(scenario: Json) -> str:
    """The effect of a fault, what to watch, how it is cleared."""
    minutes = fmt.duration(scenario["heals_after_s"])
    facts = (
        ("Does", scenario["does"]),
        ("Watch", scenario["watch"]),
        ("Heals", f"{scenario['heals']} At the latest the lab mends it after {minutes}."),
    )
    inner = "".join(f"<dt>{name}</dt><dd>{markup.text(text)}</dd>" for name, text in facts)
    return f'<dl class="eb-scenario">{inner}</dl>'


def is_running(run: Json | None) -> bool:
    return run is not None and run["state"] in RUNNING


def run_text(run: Json, names: Mapping[str, str], now_ms: int) -> str:
    """``Broken: Broker kill on broker 3, by ann; mended by itself in 9 m``."""
    name = names.get(run["slug"], run["slug"])
    where = "" if run["broker"] is None else f" on broker {run['broker']}"
    text = f"{name}{where}, by {run['by']}"
    if run["state"] in ("breaking", "broken"):
        text += f"; mended by itself in {fmt.duration(max(0, run['heals_by_ms'] - now_ms) / 1000)}"
    elif run["ended_ms"] is not None:
        text += f"; it took {fmt.duration((run['ended_ms'] - run['started_ms']) / 1000)}"
    return text + "."


def run_html(run: Json, names: Mapping[str, str], now_ms: int, clock: Callable[[int], str]) -> str:
    """The state of the scenario, and each step that was carried out."""
    status, state = STATES.get(run["state"], ("notice", str(run["state"])))
    box = markup.alert(status, f"{state}.", run_text(run, names, now_ms), str(run["message"] or ""))
    log: Sequence[Json] = run["told"]
    if not log:
        return box
    rows = [(markup.Cell(clock(entry["at_ms"]), css="eb-nowrap eb-quiet"), entry["text"]) for entry in log]
    table = markup.table([("Time", "left"), ("What was done", "left")], rows, caption="Steps of the scenario")
    return f'{box}<div class="eb-told">{table}</div>'
