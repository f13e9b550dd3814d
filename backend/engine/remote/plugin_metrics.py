"""Metrics that a plug-in shows on its broker's ``/metrics`` (KIP-877; `Monitorable`, `PluginMetrics`).

A storage or a metadata manager with a method ``with_plugin_metrics`` is lent a :class:`PluginMetrics` once, before its
first call. Kafka shows such a metric as an attribute of ``kafka.server:type=plugins,config=<setting>,class=<class>``,
the JMX exporter as ``kafka_server_plugins_<name>{config=…,class=…}``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, runtime_checkable

from backend.engine.metrics import BrokerMetrics

PREFIX: Final = "kafka_server_plugins_"
# Names of both plug-ins of a broker; at about 200 bytes each a scrape grows by 20 KB at most.
NAMES_MAX: Final = 100

_log = logging.getLogger(__name__)


@runtime_checkable
class Monitorable(Protocol):
    """A plug-in that has metrics. The method is no part of the contracts: a plug-in may do without."""

    def with_plugin_metrics(self, metrics: PluginMetrics) -> None:
        """Gets the place where the plug-in may register its metrics, now or later."""
        ...


@dataclass(slots=True)
class _Family:
    """All rows of one name."""

    is_counter: bool
    rows: dict[tuple[str, str], Callable[[], float]] = field(default_factory=dict)


class PluginRegistry:
    """The plug-ins' metrics of one broker. Two plug-ins may use one name: their rows differ in `config`."""

    def __init__(self, metrics: BrokerMetrics) -> None:
        self._metrics = metrics
        self._families: dict[str, _Family] = {}
        self._failed: set[str] = set()

    def lend(self, setting: str, plugin: object) -> None:
        """Lets a plug-in that this setting chose register its metrics, if it has any. ValueError when it cannot."""
        if not isinstance(plugin, Monitorable):
            return
        name = type(plugin).__name__
        try:
            plugin.with_plugin_metrics(PluginMetrics(self, setting, name))
        except Exception as error:  # the plug-in is others' code: the start ends with a sentence that names it
            raise ValueError(f"{setting}: the metrics of the plug-in {name} cannot be had: {error}") from error

    def add(self, name: str, doc: str, row: tuple[str, str], read: Callable[[], float], *, is_counter: bool) -> None:
        full_name = PREFIX + re.sub(r"[^a-zA-Z0-9_]", "_", name).lower()
        family = self._families.get(full_name)
        if family is None:
            if len(self._families) >= NAMES_MAX:
                raise ValueError(f"{name} is one metric too many: a broker's plug-ins may have {NAMES_MAX}")
            family = self._families[full_name] = _Family(is_counter)
            show = self._metrics.add_counter if is_counter else self._metrics.add_gauge
            show(full_name, doc, partial(self._rows, full_name))
        if family.is_counter != is_counter or row in family.rows:
            raise ValueError(f"there is a metric {name} already")
        family.rows[row] = read

    def _rows(self, full_name: str) -> list[tuple[Mapping[str, str], float]]:
        """Without those that fail: a careless plug-in must not take the broker's own metrics along."""
        rows: list[tuple[Mapping[str, str], float]] = []
        for (setting, plugin), read in self._families[full_name].rows.copy().items():
            try:
                rows.append(({"config": setting, "class": plugin}, float(read())))
            except Exception as error:  # logged once for each metric
                if full_name not in self._failed:
                    self._failed.add(full_name)
                    _log.warning("Metric %s of the plug-in %s cannot be read: %s", full_name, plugin, error)
        return rows


class PluginMetrics:
    """One plug-in's metrics. `read` is called by the thread that scrapes: it must be quick and only read.

    Both methods raise ValueError for a name that this plug-in has already, and past `NAMES_MAX`.
    """

    def __init__(self, registry: PluginRegistry, setting: str, plugin: str) -> None:
        self._registry = registry
        self._row = (setting, plugin)

    def add_gauge(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """A value that goes up and down."""
        self._registry.add(name, doc, self._row, read, is_counter=False)

    def add_counter(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """A value that only grows; shown with ``_total``."""
        self._registry.add(name, doc, self._row, read, is_counter=True)
