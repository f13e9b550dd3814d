"""One cluster with its control plane for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control.site import ControlSite
from tests.effort import effort

# Minutes on all cores; times that mean something on a quiet machine only.
collect_ignore = effort(["test_large_cluster.py", "test_estimate_times.py"], [])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlSite]:
    with ControlSite(tmp_path_factory.mktemp("site")) as made:
        yield made
