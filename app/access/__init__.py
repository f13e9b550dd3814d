"""Access to the dashboard: requests (``addresses``, ``gate``), sign-in (``login``, ``oidc_errors``, ``identity``)."""
