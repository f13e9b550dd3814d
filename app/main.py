"""The dashboard's entry: page settings, navigation, and the head row, whose pickers belong to all pages."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

# Streamlit puts this file's folder on the path; the packages are beside it.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from app import links
from app.components.shared import page, pulse
from app.theme import STATIC

LOGO = "logo-dark.svg" if st.context.theme.type == "dark" else "logo.svg"

st.set_page_config(
    page_title="ebbline", page_icon=str(STATIC / "mark.svg"), layout="wide", initial_sidebar_state="auto"
)
st.logo(str(STATIC / LOGO), size="medium")
chosen = links.navigation()
page.begin()
chosen.run()
pulse.end()
