"""The control API: one table of endpoints (``endpoints``), from which routes and `/openapi.json` are made.

How a call travels: uvicorn → ``guard`` (host, size, rate) → ``dispatch`` (token → role, query and body by pydantic) →
a handler of ``reads``, ``plans`` or ``system`` → the store or ``operations``. Every error is problem+json (RFC 9457).
"""
