"""The first document of the dashboard tells Streamlit's script where its server is, on every page's path."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import server


def test_the_server_s_address_comes_before_the_first_script() -> None:
    page = server.document()
    first = re.search(r"<script[^>]*>.*?</script>", page, flags=re.DOTALL)
    assert first is not None
    assert "BACKEND_BASE_URL" in first[0]
    assert page.count("BACKEND_BASE_URL") == 1


def test_a_document_that_is_made_otherwise_is_served_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "index.html"
    other.write_text("<html></html>")
    monkeypatch.setattr(server, "INDEX", other)
    assert server.document() == "<html></html>"
