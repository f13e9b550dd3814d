"""A cluster on which our principal lacks rights: `/readyz` names the lines of docs/attach.md, and blind spots do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from backend.control.control_plane import ControlPlane
from backend.control.control_settings import ControlSettings
from backend.control.gateway.requests.rights_requests import NOBODYS_NAME
from backend.protocol import messages as m
from backend.protocol.errors import ErrorCode
from tests.control.test_gateway import METADATA, answer, broker, request_of, serving
from tests.databases import new_sqlite

DESCRIBE_GROUPS, DESCRIBE_CLUSTER = (15, 0, 5), (60, 0, 1)
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
# The bits of Describe and DescribeConfigs.
ALLOWED = 1 << 8 | 1 << 10


def response(request: m.Message, port: int, *, granted: bool) -> m.Message:
    """A broker without topics; where nothing is granted it refuses those that it is asked for by name."""
    if isinstance(request, m.DescribeClusterRequest):
        return m.DescribeClusterResponse(cluster_id="c", cluster_authorized_operations=ALLOWED)
    if isinstance(request, m.DescribeGroupsRequest):
        return m.DescribeGroupsResponse(groups=[m.DescribeGroupsResponse.Groups(group_id=NOBODYS_NAME)])
    assert isinstance(request, m.MetadataRequest)
    topic = m.MetadataResponse.Topics
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if granted else REFUSED
    return m.MetadataResponse(
        cluster_id="c",
        controller_id=1,
        brokers=[m.MetadataResponse.Brokers(node_id=1, host="127.0.0.1", port=port)],
        topics=[topic(name=named.name, error_code=error) for named in request.topics or ()],
    )


async def readyz(folder: Path, *, granted: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """`/readyz` once rights were asked for, and `/v1/cluster` then."""
    port, described = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            header, request = await request_of(reader)
            writer.write(answer(header, response(request, port, granted=granted)))
            if isinstance(request, m.DescribeGroupsRequest):
                described.set()

    async with serving(broker(METADATA, DESCRIBE_GROUPS, DESCRIBE_CLUSTER, then=serve)) as address:
        port = address.port
        settings = ControlSettings(
            data_dir=folder,
            cluster_id="c",
            cluster_kind="attached",
            bootstrap_servers=f"127.0.0.1:{port}",
            database_url=new_sqlite(folder / "ebbline.db"),
            api_port=0,
        )
        plane = ControlPlane(settings)
        await plane.start()
        token = (folder / "run" / "viewer.token").read_text().strip()
        url, headers = f"http://127.0.0.1:{plane.port}", {"Authorization": f"Bearer {token}"}
        try:
            async with asyncio.timeout(30), httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                await described.wait()
                while True:
                    ready = (await client.get("/readyz")).json()
                    cluster = await client.get("/v1/cluster")
                    if cluster.status_code == 200 and bool(ready["missing_rights"]) is not granted:
                        spots = {spot["slug"]: spot for spot in cluster.json()["blind_spots"]}
                        if granted or "rights-missing" in spots:
                            return ready, spots
                    await asyncio.sleep(0.1)
        finally:
            await plane.stop()


def test_readyz_names_the_rights_that_are_missing(tmp_path: Path) -> None:
    ready, spots = asyncio.run(readyz(tmp_path, granted=False))
    assert ready["missing_rights"] == ["Describe on Topic `*`", "Read on Topic __remote_log_metadata"]
    assert spots["rights-missing"]["severity"] == "critical"
    assert all(right in spots["rights-missing"]["headline"] for right in ready["missing_rights"])


def test_readyz_names_no_right_where_none_is_missing(tmp_path: Path) -> None:
    ready, spots = asyncio.run(readyz(tmp_path, granted=True))
    assert ready["missing_rights"] == []
    assert "rights-missing" not in spots
