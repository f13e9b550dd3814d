"""Links from a message to the dashboard, below the address that browsers know it by (`public_url`). Pure."""

from __future__ import annotations

from urllib.parse import urlencode


def finding_link(public_url: str | None, cluster_id: str, topic: str | None, partition: int | None) -> str | None:
    """The page of the partition that a finding is about, else the Overview; None: nobody has said the address."""
    if public_url is None:
        return None
    about = {"cluster": cluster_id}
    if topic is not None and partition is not None:
        return f"{public_url}/partition?{urlencode(about | {'tp': f'{topic}-{partition}'})}"
    return f"{public_url}/?{urlencode(about)}"


def runbook_link(public_url: str | None, slug: str) -> str | None:
    """The runbook on the page Activity; None: nobody has said the address."""
    return None if public_url is None else f"{public_url}/activity?{urlencode({'runbook': slug})}"
