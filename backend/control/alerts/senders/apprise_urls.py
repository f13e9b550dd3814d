"""URLs of apprise: the check of one, without showing it."""

from __future__ import annotations

import logging
from typing import Final

PAGERDUTY: Final = "pagerduty"


def quiet_log() -> None:
    """The library logs parts of URLs, which hold keys: nothing of it goes to our log."""
    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


def names_pagerduty(url: str) -> bool:
    """Whether it leads to PagerDuty, alone or among others."""
    return f"{PAGERDUTY}://" in url.lower()


def check_apprise(url: str) -> None:
    """Raises ValueError with one sentence for a URL that apprise has no service for."""
    quiet_log()
    # It loads 190 services, which takes a second: only where one of them is used.
    from apprise import Apprise

    refusal = "apprise knows no such URL: see its list of services for how one is written"
    try:
        usable = Apprise.instantiate(url) is not None
    except Exception as error:  # each service reads its URL in its way; the error may show it
        raise ValueError(refusal) from error
    if not usable:
        raise ValueError(refusal)
