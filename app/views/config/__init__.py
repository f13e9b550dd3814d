"""The Config page: one module a section, and the form that its sections share."""
