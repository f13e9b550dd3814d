"""The control API: one table of endpoints (`endpoints`), from which routes and `/openapi.json` are made.

Way of a call: uvicorn (`api_server`, `connections`) → `guard` (host, size, rate) → `routes` → `dispatch` (token →
role, query and body by the pydantic models of `api_models`) → a function of `handlers` → the store or `operations`.
`api_tokens`, `token_guesses`: who may call. `problems`: every error is problem+json (RFC 9457). `plan_events`: server-
sent events. `readiness_checks`, `disk_room`: `/readyz`. `product_metrics`, `pipeline_metrics`: `/metrics`.
"""
