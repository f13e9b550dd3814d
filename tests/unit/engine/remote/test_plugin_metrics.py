"""A plug-in's own metrics are on its broker's `/metrics`, under the names that Kafka's JMX exporter would give them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from backend.engine.config import BrokerConfig
from backend.engine.metrics import BrokerMetrics
from backend.engine.metrics.collector import BrokerCollector
from backend.engine.ports import system_ports
from backend.engine.remote.assembly import open_remote_log_manager
from backend.engine.remote.plugin_metrics import NAMES_MAX, PluginMetrics, PluginRegistry
from backend.engine.remote.plugins import METADATA_GROUP, METADATA_SETTING, STORAGE_GROUP, STORAGE_SETTING
from tests.conformance.memory_topic import MemoryMetadataTopic
from tests.unit.engine.remote.tiers import RecordingSink

PLUGIN = """
from backend.engine.remote.metadata.in_memory_metadata_manager import InMemoryRemoteLogMetadataManager

class TapeStorage:
    def with_plugin_metrics(self, metrics):
        metrics.add_gauge("open-tapes", "tapes that turn", lambda: 3)
        metrics.add_counter("rewinds", "times a tape was rewound", lambda: 7)

    def close(self):
        pass

class TapeMetadata(InMemoryRemoteLogMetadataManager):
    def with_plugin_metrics(self, metrics):
        metrics.add_gauge("open-tapes", "tapes that turn", lambda: 1)

def storage(config):
    return TapeStorage()

def metadata(config, context):
    return TapeMetadata()
"""


def scraped(metrics: BrokerMetrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(metrics))
    text = generate_latest(registry).decode()
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)), "a name has one family"
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("kafka_server_plugins_"):
                samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return samples


def test_both_plug_ins_of_a_broker_show_theirs_with_setting_and_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "reel_plugin-1.0.dist-info").mkdir(parents=True)
    (site / "reel_plugin.py").write_text(PLUGIN)
    (site / "reel_plugin-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: reel-plugin\nVersion: 1\n"
    )
    (site / "reel_plugin-1.0.dist-info" / "entry_points.txt").write_text(
        f"[{STORAGE_GROUP}]\nreel = reel_plugin:storage\n[{METADATA_GROUP}]\nreel = reel_plugin:metadata\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "reel_plugin", raising=False)
    config, ports, metrics = (
        BrokerConfig.parse({STORAGE_SETTING: "reel", METADATA_SETTING: "reel"}),
        system_ports(),
        BrokerMetrics(3),
    )
    open_remote_log_manager(
        broker_id=3, log_dir=str(tmp_path), config=lambda: config, ports=ports, workers=ports.workers,
        topic=MemoryMetadataTopic(), events=RecordingSink(), metrics=metrics, on_fatal=print,
    )  # fmt: skip
    ports.workers.close()
    of_storage = {"broker": "3", "config": STORAGE_SETTING, "class": "TapeStorage"}
    of_metadata = {"broker": "3", "config": METADATA_SETTING, "class": "TapeMetadata"}
    assert scraped(metrics) == {
        "kafka_server_plugins_open_tapes": [(of_storage, 3), (of_metadata, 1)],
        "kafka_server_plugins_rewinds_total": [(of_storage, 7)],
    }


class Plugin:
    """Registers what the test wants."""

    def __init__(self, register: Callable[[PluginMetrics], None]) -> None:
        self.with_plugin_metrics = register


def test_a_value_that_cannot_be_read_is_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics, tapes = BrokerMetrics(1), list[int]()

    def register(own: PluginMetrics) -> None:
        own.add_gauge("first-tape", "number of the first tape", lambda: tapes[0])

    PluginRegistry(metrics).lend(STORAGE_SETTING, Plugin(register))
    with caplog.at_level(logging.WARNING):
        assert scraped(metrics) == scraped(metrics) == {}
    assert [line for line in caplog.messages if "first_tape of the plug-in Plugin" in line] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    tapes.append(5)
    [(_, value)] = scraped(metrics)["kafka_server_plugins_first_tape"]
    assert value == 5


def too_many(own: PluginMetrics) -> None:
    for number in range(NAMES_MAX + 1):
        own.add_gauge(f"tape-{number}", "of one tape", lambda: 0)


def twice(own: PluginMetrics) -> None:
    own.add_gauge("open-tapes", "tapes that turn", lambda: 0)
    own.add_gauge("open.tapes", "the same to Prometheus", lambda: 0)


def broken(own: PluginMetrics) -> None:
    raise KeyError("tape")


@pytest.mark.parametrize(
    ("register", "problem"),
    [(too_many, "tape-100 is one metric too many"), (twice, "a metric open.tapes already"), (broken, "'tape'")],
)
def test_a_plug_in_that_cannot_have_its_metrics_is_one_sentence_with_its_setting(
    register: Callable[[PluginMetrics], None], problem: str
) -> None:
    with pytest.raises(ValueError, match=rf"{STORAGE_SETTING}: the metrics of the plug-in Plugin .*{problem}"):
        PluginRegistry(BrokerMetrics(1)).lend(STORAGE_SETTING, Plugin(register))


def test_a_plug_in_without_metrics_shows_none() -> None:
    metrics = BrokerMetrics(1)
    PluginRegistry(metrics).lend(STORAGE_SETTING, object())
    assert scraped(metrics) == {}
