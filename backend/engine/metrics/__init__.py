"""One broker's counters and gauges, under the names that the JMX exporter's rules for Kafka give.

The engine counts into plain integers and `collector` reads them at a scrape: a hot path pays an addition.
"""

from backend.engine.metrics.broker_metrics import BrokerMetrics, MetricValue, RequestMeter, TopicMeters
from backend.engine.metrics.metrics_server import MetricsServer, serve_metrics

__all__ = ["BrokerMetrics", "MetricValue", "MetricsServer", "RequestMeter", "TopicMeters", "serve_metrics"]
