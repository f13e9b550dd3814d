"""Lists of the API are read page by page: nothing is missed, nothing comes twice, the last page says that it is."""

from __future__ import annotations

import pytest

from tests.control.site import ControlSite


@pytest.fixture(scope="module", autouse=True)
def three(site: ControlSite) -> None:
    """Plans that are refused, which stands in the audit."""
    for broker_id in (1, 2, 3):
        assert site.plan({"scope": "broker", "broker_id": broker_id, "enable": None})["state"] == "refused"


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("path", ["/v1/plans", "/v1/audit"])
def test_pages_together_are_the_list(site: ControlSite, path: str, size: int) -> None:
    whole = site.get(f"{path}?limit=1000")
    assert (len(whole["items"]) >= 3, whole["next_before_id"]) == (True, None)
    seen, before = [], ""
    while True:
        page = site.get(f"{path}?limit={size}{before}")
        seen += page["items"]
        if page["next_before_id"] is None:
            break
        assert len(page["items"]) == size
        before = f"&before_id={page['next_before_id']}"
    assert page["items"], "a page is told of only when something is on it"
    assert seen == whole["items"]
