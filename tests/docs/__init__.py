"""Tests that read the documentation: its command blocks are run, its names are compared with the product's."""
