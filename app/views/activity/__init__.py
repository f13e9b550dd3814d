"""The Activity page: the audit, events, plans; alert rules and runbooks."""
