"""The cluster that the tests of a tiered topic's life share: brokers with two log dirs, as in Kafka's own tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.tiering_lab import Lab, lab


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("tiering-life"), log_dirs=2) as started:
        yield started
