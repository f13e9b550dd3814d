"""Migrations and the SQL dialects, on real databases."""
