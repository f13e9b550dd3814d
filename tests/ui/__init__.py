"""Tests of the pages with Streamlit's AppTest: what is on the screen for what is in the database."""
