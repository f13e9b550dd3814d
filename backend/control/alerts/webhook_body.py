"""The JSON of the webhook, version 1, and its signature. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any, Final

from backend.control.alerts.alert_texts import ClusterName, digest_counts, first_of
from backend.control.alerts.notices import Notice
from backend.control.alerts.page_links import finding_link, runbook_link
from backend.control.alerts.receiver_queue import Delivery
from backend.control.findings.catalogue import runbook

VERSION: Final = 1
DELIVERY_HEADER: Final = "Ebbline-Delivery"
TIMESTAMP_HEADER: Final = "Ebbline-Timestamp"
SIGNATURE_HEADER: Final = "Ebbline-Signature"


def webhook_body(delivery: Delivery, cluster: ClusterName) -> bytes:
    """One event of one finding, or a digest of many."""
    about: dict[str, Any] = {"cluster_id": cluster.cluster_id, "cluster_name": cluster.name}
    newest_ms = max(notice.at_ms for notice in delivery.notices)
    if delivery.digest:
        counts = [
            {"event": str(event), "severity": severity, "slug": slug, "number": number}
            for event, severity, slug, number in digest_counts(delivery.notices)
        ]
        content: dict[str, Any] = {
            "digest": {
                "number": len(delivery.notices),
                "counts": counts,
                "first": [
                    {"event": str(notice.event), **_finding(notice, cluster)} for notice in first_of(delivery.notices)
                ],
                "link": finding_link(cluster.public_url, cluster.cluster_id, None, None),
            }
        }
        event = "digest"
    else:
        (notice,) = delivery.notices
        content, event = {"finding": _finding(notice, cluster)}, str(notice.event)
    body = {"version": VERSION, "event": event, "at_ms": newest_ms, **about, **content}
    return json.dumps(body, ensure_ascii=False, default=str).encode()


def delivery_id(delivery: Delivery, cluster_id: str, receiver: str) -> str:
    """The same for a message that is tried again, also by the next process: receivers know it by that."""
    digest = hashlib.sha256(f"{cluster_id}\0{receiver}\0{delivery.digest}".encode())
    for notice in delivery.notices:
        parts = (notice.event, notice.severity, notice.slug, notice.object, notice.opened_ms)
        digest.update("\0".join(str(part) for part in parts).encode() + b"\n")
    return digest.hexdigest()[:32]


def signature(secret: bytes, timestamp_s: int, body: bytes) -> str:
    """`v1=` and HMAC-SHA256 of the timestamp, a dot and the body: a copy that is sent later has an old timestamp."""
    return "v1=" + hmac.new(secret, f"{timestamp_s}.".encode() + body, hashlib.sha256).hexdigest()


def _finding(notice: Notice, cluster: ClusterName) -> dict[str, Any]:
    cause = None if notice.cause is None else {"slug": notice.cause[0], "object": notice.cause[1]}
    return {
        "slug": notice.slug,
        "object": notice.object,
        "severity": notice.severity,
        "sentence": notice.sentence,
        "action": notice.action,
        "evidence": notice.evidence,
        "topic": notice.topic,
        "partition": notice.partition,
        "broker_id": notice.broker_id,
        "runbook": runbook(notice.slug),
        "opened_ms": notice.opened_ms,
        "cause": cause,
        "explains": notice.explains,
        "link": finding_link(cluster.public_url, cluster.cluster_id, notice.topic, notice.partition),
        "runbook_link": runbook_link(cluster.public_url, notice.slug),
    }
