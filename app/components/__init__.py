"""Figures, tables and formatters: rows in, figure or text out. Pure."""
