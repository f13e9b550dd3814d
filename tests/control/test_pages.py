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


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_settings_are_read_page_by_page(site: ControlSite, size: int) -> None:
    which = "/v1/config?resource=2"
    whole = site.wait_until("they were looked at", lambda: site.get(which)["items"]) or []
    pages = [site.get(f"{which}&limit={size}&offset={at}") for at in range(0, len(whole) + 1, size)]
    assert {page["total"] for page in pages} == {len(whole)}
    assert [row["name"] for page in pages for row in page["items"]] == [row["name"] for row in whole]
