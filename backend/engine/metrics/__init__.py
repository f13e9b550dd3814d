"""One broker's counters and gauges, under the names the JMX exporter's Kafka rules give (architecture, fixed names).

The engine counts into plain integers and `collector` reads them when somebody scrapes: a hot path pays an addition.
"""

from backend.engine.metrics.broker_metrics import BrokerMetrics, Reading, RequestMeter, TopicMeters
from backend.engine.metrics.http import MetricsServer, serve_metrics

__all__ = ["BrokerMetrics", "MetricsServer", "Reading", "RequestMeter", "TopicMeters", "serve_metrics"]
